# Compiles for inf1. AWS' last image with torch-neuron traces in its Python 3.10. Corelane runs in a newer Python beside it.
# We have not run this on a device. AWS has archived inf1 (last driver: aws-neuronx-dkms 2.24).
# Build from the repository's root:
#   docker build -f deploy/inf1.Dockerfile -t corelane-inf1 .
#   docker run -v data:/data corelane-inf1 compile qa-minilm --target inf1 --neuron-python neuron-python --cpu-backend
FROM ghcr.io/astral-sh/uv:0.9 AS uv
FROM public.ecr.aws/neuron/pytorch-inference-neuron:1.13.1-neuron-py310-sdk2.20.2-ubuntu20.04

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app

# The image's own Python holds only the packages that inf1 needs. Corelane finds it by a name that does not depend on the
# image.
COPY constraints ./constraints
RUN python -m pip install --extra-index-url https://pip.repos.neuron.amazonaws.com -c constraints/inf1.txt \
        "neuron-cc[tensorflow]" torch-neuron transformers "protobuf<3.20" "numpy<2" \
    && printf '#!/bin/sh\nexec "%s" "$@"\n' "$(python -c 'import sys; print(sys.executable)')" > /usr/local/bin/neuron-python \
    && chmod +x /usr/local/bin/neuron-python

COPY --from=uv /uv /usr/local/bin/uv
COPY pyproject.toml README.md LICENSE ./
COPY deploy/install.sh ./deploy/
COPY models ./models
COPY corelane ./corelane
COPY api ./api
COPY workers ./workers
COPY compile ./compile
RUN uv python install 3.11 && deploy/install.sh /opt/corelane compile "$(uv python find 3.11)"

ENV CORELANE_DATA_DIR=/data PATH=/opt/corelane/bin:$PATH
VOLUME /data
STOPSIGNAL SIGTERM
ENTRYPOINT ["corelane"]
CMD ["--help"]
