# Corelane on inf2, trn1, trn2 and trn3: AWS' last image with the tracing torch-neuronx (SDK 2.31.1), and Corelane in its Python.
# We have not run this on a device.
# Build from the repository's root:   docker build -f deploy/neuron.Dockerfile -t corelane-neuron .
# To compile without a device:        docker run -v data:/data corelane-neuron corelane compile qa-minilm --target inf2 --cpu-backend
# With devices, name each of them:    docker run --device=/dev/neuron0 …
# The host needs the driver, aws-neuronx-dkms 2.29. deploy/compose/neuron.yml uses this image.
ARG NEURON_IMAGE=public.ecr.aws/neuron/pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.31.1-ubuntu24.04

# Corelane and what it adds to the image's own packages, in an environment on top of them.
FROM ${NEURON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY constraints ./constraints
COPY models ./models
COPY corelane ./corelane
COPY api ./api
COPY workers ./workers
COPY compile ./compile
RUN python -m venv --system-site-packages /opt/corelane \
    && /opt/corelane/bin/python -m pip install --extra-index-url https://pip.repos.neuron.amazonaws.com \
        -c constraints/neuron.txt -e ".[neuron,remote]" \
    && /opt/corelane/bin/python -m compileall -q corelane api workers compile \
    && rm -rf constraints *.egg-info

FROM ${NEURON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Corelane for Neuron" \
      org.opencontainers.image.description="A durable queue in front of text models: POST one item or a million, get every result once." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --system --gid 10001 corelane \
    && useradd --system --uid 10001 --gid 10001 --home-dir /app --no-create-home corelane \
    && install --directory --owner=10001 --group=10001 /data
COPY --from=build /opt/corelane /opt/corelane
COPY --from=build /app /app
WORKDIR /app
USER 10001:10001
ENV PATH=/opt/corelane/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HOME=/data/huggingface \
    CORELANE_DATA_DIR=/data CORELANE_HOST=0.0.0.0
VOLUME /data
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=300s CMD ["corelane", "health"]
# The image's own entry point is a model server.
ENTRYPOINT []
CMD ["corelane", "--help"]
