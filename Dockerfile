# One image, roles by command: `corelane api`, `corelane worker --core N`, `corelane keeper`,
# `corelane deliveries`, `corelane flower`.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/corelane/bin:$PATH
WORKDIR /app

# Libraries first: they change less often than our own code. The four packages are only marked here.
COPY pyproject.toml README.md LICENSE ./
COPY constraints ./constraints
COPY deploy/install.sh ./deploy/
COPY corelane/__init__.py ./corelane/
COPY api/__init__.py ./api/
COPY workers/__init__.py ./workers/
COPY compile/__init__.py ./compile/
RUN --mount=type=bind,from=wheels,target=/wheels PIP_FIND_LINKS=/wheels deploy/install.sh /opt/corelane compile,otel

COPY models ./models
COPY corelane ./corelane
COPY api ./api
COPY workers ./workers
COPY compile ./compile

RUN useradd --system --uid 10001 --home-dir /app corelane && mkdir /data && chown corelane /data
USER corelane
ENV CORELANE_DATA_DIR=/data CORELANE_HOST=0.0.0.0 CORELANE_FLOWER_HOST=0.0.0.0
VOLUME /data
STOPSIGNAL SIGTERM
CMD ["corelane", "api"]
