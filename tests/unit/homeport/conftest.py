"""These tests are of the checkout that they stand in, whichever one the environment has installed."""

import pytest

import homeport

with pytest.MonkeyPatch.context() as patched:
    patched.setattr(homeport, "installed", lambda: None)
    import homeport.plugin
    import homeport.testing
