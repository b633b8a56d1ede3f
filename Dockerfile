# The server with its console and the extras for every store, key service and exporter:
# docs/servers/deployment.md.
FROM node:24-trixie-slim AS console
WORKDIR /build/console
COPY console ./
RUN npm ci --no-audit --no-fund
COPY clients/typescript/src/gen /build/clients/typescript/src/gen
RUN npm run build

FROM python:3.13-slim-trixie AS build
WORKDIR /build
COPY requirements/build.txt requirements/server.txt requirements/
RUN python -m venv --without-pip /opt/tuskpoint \
    && pip --python /opt/tuskpoint/bin/python install --no-cache-dir --require-hashes \
        --only-binary :all: --requirement requirements/server.txt \
    && pip install --no-cache-dir --require-hashes --only-binary :all: \
        --requirement requirements/build.txt
COPY clients/python clients/python
COPY server server
COPY --from=console /build/server/src/tuskpoint_server/api/web/assets \
    server/src/tuskpoint_server/api/web/assets
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels \
        ./clients/python ./server \
    && pip --python /opt/tuskpoint/bin/python install --no-cache-dir --no-deps wheels/*.whl \
    && pip --python /opt/tuskpoint/bin/python check

FROM python:3.13-slim-trixie
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/tuskpoint tuskpoint \
    && install --directory --owner tuskpoint --group tuskpoint --mode 700 /var/lib/tuskpoint
COPY --from=build /opt/tuskpoint /opt/tuskpoint
ENV PATH=/opt/tuskpoint/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    TUSKPOINT_DATA_DIR=/var/lib/tuskpoint \
    TUSKPOINT_LISTEN=0.0.0.0:7390
USER 10001:10001
VOLUME /var/lib/tuskpoint
EXPOSE 7390
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --start-interval=1s \
    CMD ["tuskpoint-server", "health"]
ENTRYPOINT ["tuskpoint-server"]
