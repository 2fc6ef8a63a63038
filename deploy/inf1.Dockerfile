# Corelane on inf1: AWS' last image with torch-neuron, for its Python 3.10, and Corelane in a newer Python beside it. What
# needs torch-neuron runs in `neuron-python`: the compiler, and a device process for each core (docs/targets.md).
# We have not run this on a device. AWS has archived inf1 (last driver: aws-neuronx-dkms 2.24).
# Build from the repository's root:
#   docker build -f deploy/inf1.Dockerfile -t corelane-inf1 .
# To compile without a device:  docker run -v data:/data corelane-inf1 corelane compile qa-minilm --target inf1 --cpu-backend
# With devices, name each:      docker run --device=/dev/neuron0 …      deploy/compose/neuron.yml uses it.
ARG UV_IMAGE=ghcr.io/astral-sh/uv:0.9
ARG NEURON_IMAGE=public.ecr.aws/neuron/pytorch-inference-neuron:1.13.1-neuron-py310-sdk2.20.2-ubuntu20.04

# COPY --from takes no variable, a stage does.
FROM ${UV_IMAGE} AS uv

FROM ${NEURON_IMAGE} AS build
# no: the index builds packages itself, so that they have other digests than constraints/cpu.hashes.txt.
ARG HASHES=yes
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_PYTHON_INSTALL_DIR=/opt/python
WORKDIR /app

# Only what inf1 needs, on top of the image's own Python. Corelane finds it by the default of CORELANE_NEURON_PYTHON.
COPY constraints ./constraints
RUN python -m venv --system-site-packages /opt/neuron \
    && /opt/neuron/bin/python -m pip install --extra-index-url https://pip.repos.neuron.amazonaws.com \
        -c constraints/inf1.txt "neuron-cc[tensorflow]" torch-neuron transformers "protobuf<3.20" "numpy<2" \
    && printf '#!/bin/sh\nPATH=/opt/neuron/bin:$PATH exec /opt/neuron/bin/python "$@"\n' > /opt/neuron/neuron-python \
    && chmod +x /opt/neuron/neuron-python

COPY --from=uv /uv /usr/local/bin/uv
COPY pyproject.toml README.md LICENSE ./
COPY deploy/install.sh ./deploy/
COPY models ./models
COPY corelane ./corelane
COPY api ./api
COPY workers ./workers
COPY compile ./compile
RUN uv python install 3.11 && deploy/install.sh /opt/corelane compile "$(uv python find 3.11)" \
    && /opt/corelane/bin/python -m compileall -q corelane api workers compile \
    && rm -rf deploy constraints *.egg-info

FROM ${NEURON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Corelane for inf1" \
      org.opencontainers.image.description="A durable queue in front of text models: POST one item or a million, get every result once." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --system --gid 10001 corelane \
    && useradd --system --uid 10001 --gid 10001 --home-dir /app --no-create-home corelane \
    && install --directory --owner=10001 --group=10001 /data
COPY --from=build /opt/python /opt/python
COPY --from=build /opt/neuron /opt/neuron
COPY --from=build /opt/neuron/neuron-python /usr/local/bin/
COPY --from=build /opt/corelane /opt/corelane
COPY --from=build /app /app
WORKDIR /app
USER 10001:10001
ENV PATH=/opt/corelane/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HOME=/data/huggingface \
    CORELANE_DATA_DIR=/data
VOLUME /data
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=300s CMD ["corelane", "health"]
ENTRYPOINT []
CMD ["corelane", "--help"]
