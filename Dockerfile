# The proxy's image, with every optional extra: shared state, traces, signed tokens.
#
#   docker build -t toolcall-proxy:0.1.0 .
#   docker build --build-arg PYTHON=python:3.13-slim@sha256:... .     the base pinned by its digest, as production wants it
#   docker run --read-only --cap-drop ALL --stop-timeout 60 -p 8080:8080 -v "$PWD/conf:/etc/toolcall-proxy:ro" toolcall-proxy:0.1.0
#
# The config has to listen on 0.0.0.0 to be reached from outside of the container. Nothing is ever written.

ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock config.example.yaml ./
COPY schemas schemas
COPY docs docs
COPY proxy proxy
COPY .ci/rootfs ./
# The lock holds versions down; what to install is said by the package itself, so that no build tool comes along.
RUN python -m venv /build && \
    /build/bin/python -m pip install --no-cache-dir --quiet --constraint requirements.lock hatchling && \
    /build/bin/python -m pip wheel --no-cache-dir --quiet --no-deps --no-build-isolation --wheel-dir /wheels .
# Without pip of its own: nothing can be installed in the running image.
RUN python -m venv --without-pip /opt/toolcall-proxy && \
    /build/bin/python -m pip --python /opt/toolcall-proxy/bin/python install --no-cache-dir --quiet \
      --constraint requirements.lock "$(echo /wheels/*.whl)[redis,otel,jwt]"
# No shell, package manager or file that changes the user comes into the image.
RUN sh rootfs /rootfs /opt/toolcall-proxy

FROM scratch
LABEL org.opencontainers.image.title="toolcall-proxy" \
      org.opencontainers.image.description="A validating sidecar in front of LLM tool services" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /rootfs /
# SAFEPATH: no module is ever taken from the working directory. Bytecode was compiled when it was installed.
ENV PATH=/opt/toolcall-proxy/bin LANG=C.UTF-8 PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /
# By number: Kubernetes can tell that it is not root (runAsNonRoot).
USER 10001:10001
RUN ["python", "-m", "proxy", "--version"]
EXPOSE 8080 9091
# Kubernetes has probes of its own; this is for `docker run`. The operator's port, on the container's loopback. The OCI's
# format has no such line: build with `--format docker`.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s \
  CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8081, timeout=2); c.request('GET', '/livez'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["python", "-m", "proxy"]
CMD ["serve", "/etc/toolcall-proxy/config.yaml"]
