# syntax=docker/dockerfile:1
# Any command of volumetric in a container; docs/server.md says how to serve with it.
#   docker build --tag volumetric .
#   docker run --rm volumetric devices

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY volumetric volumetric
RUN python -m venv /opt/volumetric \
    && /opt/volumetric/bin/pip install --no-cache-dir --no-compile ".[serve,data,viz]"

FROM python:3.12-slim
# The loader of Vulkan, of any version; the driver comes from the machine (NVIDIA's container toolkit, or /dev/dri with a driver package).
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libvulkan1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 volumetric
COPY --from=build /opt/volumetric /opt/volumetric
ENV PATH=/opt/volumetric/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility
USER 1000:1000
WORKDIR /home/volumetric
# The folder exists before a volume is mounted on it, so that the volume belongs to the user.
RUN mkdir .cache
EXPOSE 8080
ENTRYPOINT ["volumetric"]
CMD ["--help"]
