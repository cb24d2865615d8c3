# Lapwing in a container, for a CPU: the board by default, any other command by name. docs/container.md has examples.
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir '/src[board,cloud,optuna]' && rm -rf /src
# Runs are in the folder that is mounted here.
WORKDIR /data
ENV XDG_CACHE_HOME=/data/.cache
EXPOSE 8765
ENTRYPOINT ["lapwing"]
CMD ["board", "--host", "0.0.0.0", "--port", "8765"]
