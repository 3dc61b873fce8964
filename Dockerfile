FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    GATEWAY_DATA_DIR=/var/lib/gateway

RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/gateway gateway

WORKDIR /app

# Before the code, so that a change of the code does not install everything again.
COPY requirements.txt ./
RUN pip install --require-hashes --requirement requirements.txt

COPY . ./
# With no database named, the settings make secrets of their own; these end with this step.
RUN GATEWAY_DATA_DIR=/tmp/build python manage.py collectstatic --no-input --verbosity 0 \
    && rm -rf /tmp/build

# The number and not the name, so that a cluster can see that it is not root.
USER 10001
EXPOSE 8000

# ALLOWED_HOSTS must hold this address, or the answer is 400.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]

CMD ["python", "manage.py", "serve", "--host", "0.0.0.0", "--port", "8000"]
