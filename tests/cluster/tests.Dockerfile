# The image, and beside what is in it the unit tests with all they need: do they pass under its Python?
ARG IMAGE=localhost/homeport:cluster
# hadolint ignore=DL3006
FROM ${IMAGE}
# hadolint ignore=DL3002
USER 0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /tests
COPY requirements-dev.lock /src/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=pip.pem,target=/etc/pip.pem \
    /tests/bin/pip install --quiet --no-cache-dir --require-hashes -r /src/requirements-dev.lock
COPY . /src
WORKDIR /src
RUN /tests/bin/pip install --quiet --no-deps --no-build-isolation --no-index --editable .
ENTRYPOINT []
