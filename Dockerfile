# `chunkproof serve` and `chunkproof mcp` as a container: docker build -t chunkproof .
FROM python:3.13-slim AS build
WORKDIR /source
COPY cli/requirements-image.txt .
RUN python -m venv /venv \
 && /venv/bin/pip install --quiet --no-cache-dir --require-hashes --no-deps -r requirements-image.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY shared shared
COPY cli cli
COPY functions functions
RUN /venv/bin/pip install --quiet --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim
COPY --from=build /venv /venv
# Collections of the store in a folder are kept in the volume.
RUN useradd --create-home --uid 10001 chunkproof && mkdir /data && chown chunkproof /data
USER chunkproof
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["chunkproof"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000", "--data", "/data"]
