# Corelane on inf2, trn1 and trn2: AWS' last image with the tracing torch-neuronx (SDK 2.31.1), and Corelane in its Python.
# We have not run this on a device.
# Build from the repository's root:   docker build -f deploy/neuron.Dockerfile -t corelane-neuron .
# To compile without a device:        docker run -v data:/data corelane-neuron compile qa-minilm --target inf2 --cpu-backend
# With devices, name each of them:    docker run --device=/dev/neuron0 …
# The host needs the driver, aws-neuronx-dkms 2.29.
FROM public.ecr.aws/neuron/pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.31.1-ubuntu24.04

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app

COPY pyproject.toml README.md LICENSE ./
COPY constraints ./constraints
COPY models ./models
COPY corelane ./corelane
COPY api ./api
COPY workers ./workers
COPY compile ./compile
RUN python -m pip install --extra-index-url https://pip.repos.neuron.amazonaws.com -c constraints/neuron.txt -e ".[neuron]"

ENV CORELANE_DATA_DIR=/data CORELANE_HOST=0.0.0.0
VOLUME /data
STOPSIGNAL SIGTERM
# The image's own entry point is a model server.
ENTRYPOINT ["corelane"]
CMD ["--help"]
