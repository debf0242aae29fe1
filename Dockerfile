# syntax=docker/dockerfile:1
# A tag can be replaced: `make pin-image` writes its digest here. Or: docker build --build-arg PYTHON=python@sha256:…
ARG PYTHON=python:3.12-slim-bookworm
FROM ${PYTHON} AS build
WORKDIR /src
COPY docs/deploy/uv.txt docs/deploy/uv.txt
RUN pip install --no-cache-dir --require-hashes -r docs/deploy/uv.txt
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY bot bot
COPY ledger ledger
COPY providers providers
COPY migrations migrations
RUN UV_PROJECT_ENVIRONMENT=/opt/venv uv sync --locked --no-dev --no-editable --compile-bytecode
RUN uv pip install --no-deps --require-hashes --only-binary :all: --python-version 3.10 --target /tmp/agent -r bot/agent/requirements.txt \
  && /opt/venv/bin/python -m bot.agent.build /tmp/agent /opt/venv/share/gpu-shopper-agent.pyz

FROM ${PYTHON}
RUN useradd --create-home --uid 10001 gpu && install -d -o gpu -g gpu -m 0700 /data
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH GPU_SHOPPER_DATA_DIR=/data GPU_SHOPPER_HOST=0.0.0.0 GPU_SHOPPER_LOG_FORMAT=json \
  GPU_SHOPPER_AGENT_FILE=/opt/venv/share/gpu-shopper-agent.pyz
USER gpu
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=4)"]
ENTRYPOINT ["gpu-shopper"]
CMD ["serve"]
