# Homeport's image: Python and its standard library from Debian, and a virtual environment from the lock.
# Built by `make image`; what each choice is for: docs/image.md
ARG BASE=debian:trixie-slim

FROM ${BASE} AS python
# Debian keeps one version of a package: a pinned one could not be installed after its next security update.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/cache/apt/* /var/lib/apt/lists/* /var/log/*

FROM python AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/cache/apt/* /var/lib/apt/lists/* /var/log/* \
    && python3 -m venv /build \
    && python3 -m venv --without-pip /opt/homeport
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements-otlp.lock requirements-build.lock /src/
# The secrets are optional: how pip reaches its index where that takes settings or an authority of its own.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=pip.pem,target=/etc/pip.pem \
    /build/bin/pip install --quiet --require-hashes --only-binary :all: -r /src/requirements-build.lock \
    && /build/bin/pip --python /opt/homeport/bin/python install --quiet \
        --require-hashes --only-binary :all: -r /src/requirements-otlp.lock
COPY pyproject.toml README.md /src/
COPY homeport /src/homeport
COPY app /src/app
COPY plugins /src/plugins
WORKDIR /src
# Of the kubernetes client only the credentials are used: its calls, made for asyncio once more, are 100 MB of nothing.
# Bytecode is not compared with its source when it is loaded: nothing changes either of them any more.
RUN /build/bin/python -m build --wheel --no-isolation --outdir /wheels . \
    && /build/bin/pip --python /opt/homeport/bin/python install --quiet --no-index --no-deps /wheels/*.whl \
    && rm -r /opt/homeport/lib/python3*/site-packages/kubernetes/aio \
        /opt/homeport/lib/python3*/site-packages/kubernetes/client/api \
    && /opt/homeport/bin/python -m compileall -q --invalidation-mode unchecked-hash \
        -x kubernetes/client/models/ /opt/homeport/lib

FROM python
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Homeport" \
      org.opencontainers.image.description="A Kubernetes scheduler extender: replicas spread, machines come home." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The number would do for a user, but not for its group: a container runtime looks that up.
RUN groupadd --gid 65532 homeport \
    && useradd --uid 65532 --gid 65532 --no-log-init --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin homeport
COPY --from=build /opt/homeport /opt/homeport
COPY examples/sample-cluster.yaml /usr/share/homeport/
ENV PATH=/opt/homeport/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /
USER 65532:65532
ENTRYPOINT ["homeport"]
CMD ["serve"]
