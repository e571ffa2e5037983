# The lab: SGLang's real server, patched, on a CPU; only the GPU kernels are emulated. Build it with
#   docker buildx bake -f docker/docker-bake.hcl lab
ARG PYTHON_IMAGE=python:3.11-slim

# Wheels of your own, for a machine without an index: --set lab.contexts.wheels=FOLDER
FROM scratch AS wheels

# Everything that changes rarely: SGLang and what it imports, from hash-locked files alone.
FROM ${PYTHON_IMAGE} AS environment
RUN useradd --uid 1000 --create-home fastfill \
    && install -d -o fastfill /opt/lab /dist /requirements /var/lib/fastfill /var/lib/fastfill/state
USER 1000
# The index of PyTorch's CPU builds, which are in no other; empty where pip's own settings lead to them.
ARG FASTFILL_LAB_TORCH_INDEX=
COPY requirements/lab-torch.txt requirements/lab.txt /requirements/
# What only a compiler or a GPU needs is left out of the image: 0.4 GB.
RUN --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=cache,target=/home/fastfill/.cache/pip,uid=1000 \
    set -eux; \
    python3 -m venv /opt/lab; \
    pip="/opt/lab/bin/python -m pip install --require-hashes --no-deps --no-input --disable-pip-version-check"; \
    $pip --find-links /wheels ${FASTFILL_LAB_TORCH_INDEX:+--extra-index-url "$FASTFILL_LAB_TORCH_INDEX"} \
        -r /requirements/lab-torch.txt; \
    $pip -r /requirements/lab.txt; \
    site=/opt/lab/lib/python3.11/site-packages; \
    rm -rf "$site"/torch/test "$site"/torch/include "$site"/torch/bin/protoc* "$site"/triton/backends/nvidia/bin \
        "$site"/triton/backends/nvidia/lib "$site"/triton/backends/nvidia/include; \
    /opt/lab/bin/python -c "import torch, triton; print(torch.__version__, triton.__version__)"

FROM environment AS wheel
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=bind,source=docker/steps/tools.sh,target=/steps/tools.sh \
    --mount=type=bind,source=requirements/build.txt,target=/requirements/build.txt \
    --mount=type=cache,target=/home/fastfill/.cache/pip,uid=1000 \
    /steps/tools.sh /opt/lab/bin/python
WORKDIR /home/fastfill/source
COPY pyproject.toml README.md ./
COPY requirements requirements
COPY docker/stacks docker/stacks
COPY patches patches
COPY launch launch
RUN --mount=type=bind,source=docker/steps/wheel.sh,target=/steps/wheel.sh \
    /steps/wheel.sh /opt/lab/bin/python

# The tiny models, written now so that a container starts without waiting for them; an edited patch changes none.
FROM environment AS models
COPY --chown=1000 launch/fastfill /source/fastfill
COPY --chown=1000 patches/sglang_fastfill /source/sglang_fastfill
RUN FASTFILL_CACHE=/var/lib/fastfill PYTHONPATH=/source PYTHONDONTWRITEBYTECODE=1 \
    /opt/lab/bin/python -m fastfill lab write-models

FROM environment AS lab
ENV PATH=/opt/lab/bin:$PATH FASTFILL_CACHE=/var/lib/fastfill FASTFILL_STATE_DIR=/var/lib/fastfill/state
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,mode=0444 \
    --mount=type=bind,source=docker/steps/dependencies.sh,target=/steps/dependencies.sh \
    --mount=type=bind,source=requirements/serve.txt,target=/requirements/serve.txt \
    --mount=type=cache,target=/home/fastfill/.cache/pip,uid=1000 \
    /steps/dependencies.sh /opt/lab/bin/python
RUN --mount=type=bind,source=docker/steps/install.sh,target=/steps/install.sh \
    --mount=type=bind,from=wheel,source=/dist,target=/dist \
    /steps/install.sh /opt/lab/bin/python
RUN fastfill lab adopt /opt/lab
COPY --from=models --chown=1000 /var/lib/fastfill/models /var/lib/fastfill/models
ARG SOURCE_REVISION=""
LABEL org.opencontainers.image.title="fastfill lab" \
      org.opencontainers.image.revision="${SOURCE_REVISION}" \
      org.opencontainers.image.base.name="python:3.11-slim"
VOLUME /var/lib/fastfill/state
EXPOSE 30000
ENTRYPOINT ["fastfill", "supervise", "--", "fastfill", "lab", "run", "--host", "0.0.0.0"]
