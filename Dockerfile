# One image, roles by command: `corelane api`, `corelane worker --core N`, `corelane keeper`, `corelane deliveries`,
# `corelane flower`. docs/deploy.md says how to build, push and pin it.
# The base can be pinned: --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:…
ARG PYTHON_IMAGE=python:3.11-slim

# Pip, its caches and what builds packages stay in this stage.
FROM ${PYTHON_IMAGE} AS build
# cpu: PyTorch's CPU build. cuda: the build for NVIDIA GPUs, which is gigabytes; we have not run that image.
ARG TORCH=cpu
# no: the index builds packages itself, so that they have other digests than constraints/cpu.hashes.txt.
ARG HASHES=yes
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /app

# Libraries first: they change less often than our own code. The four packages are only marked here.
COPY pyproject.toml README.md LICENSE ./
COPY constraints ./constraints
COPY deploy/install.sh ./deploy/
COPY corelane/__init__.py ./corelane/
COPY api/__init__.py ./api/
COPY workers/__init__.py ./workers/
COPY compile/__init__.py ./compile/
RUN --mount=type=bind,from=wheels,target=/wheels --mount=type=cache,target=/root/.cache/pip \
    export PIP_FIND_LINKS=/wheels \
    && if [ "$TORCH" = cuda ]; then \
        python -m venv /opt/corelane \
        && PIP_FIND_LINKS= /opt/corelane/bin/python -m pip install -c constraints/cpu.txt torch; \
    fi \
    && deploy/install.sh /opt/corelane compile,otel,remote \
    && /opt/corelane/bin/python -m pip uninstall --quiet --yes pip \
    && rm -rf deploy constraints *.egg-info
# What no running service reads, 270 MB: packages' own tests, programs that test PyTorch, headers and stubs.
RUN rm -rf /opt/corelane/lib/python3.*/site-packages/torch/include \
    && find /opt/corelane/lib/python3.*/site-packages/torch/bin -type f ! -name torch_shm_manager -delete \
    && find /opt/corelane/lib -type d \( -name test -o -name tests \) -prune -exec rm -r {} + \
    && find /opt/corelane/lib -type f \( -name "*.pyi" -o -name "*.h" -o -name "*.a" \) -delete

COPY models ./models
COPY corelane ./corelane
COPY api ./api
COPY workers ./workers
COPY compile ./compile
# The root is read-only where it runs, so Python could not write these there.
RUN /opt/corelane/bin/python -m compileall -q corelane api workers compile

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Corelane" \
      org.opencontainers.image.description="A durable queue in front of text models: POST one item or a million, get every result once." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --system --gid 10001 corelane \
    && useradd --system --uid 10001 --gid 10001 --home-dir /app --no-create-home corelane \
    && install --directory --owner=10001 --group=10001 /data \
    && rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/ensurepip /usr/local/lib/python3.*/site-packages/pip*
COPY --from=build /opt/corelane /opt/corelane
COPY --from=build /app /app
WORKDIR /app
USER 10001:10001
# Files of Hugging Face are kept in the data folder, the one place besides /tmp that can be written.
ENV PATH=/opt/corelane/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HOME=/data/huggingface \
    CORELANE_DATA_DIR=/data CORELANE_HOST=0.0.0.0 CORELANE_FLOWER_HOST=0.0.0.0
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
# That of the API; each other role has a check of its own in the compose file.
HEALTHCHECK --interval=15s --timeout=10s --start-period=180s CMD ["corelane", "health"]
CMD ["corelane", "api"]
