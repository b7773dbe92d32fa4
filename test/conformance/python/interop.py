#!/usr/bin/env python3
"""What accel writes is read by the real Python packages, and what they write by accel.

    interop.py CHECK SUBJECT

CHECK is tensorboard, mlflow, safetensors or accelerate; SUBJECT the program accel_interop. Exit code 0: right; 1: wrong, and
what; 77: a package that the check needs is not installed (CTest counts it as skipped). Which Python runs it: the CMake variable
ACCEL_INTEROP_PYTHON, for instance that of a virtual environment with torch, accelerate, safetensors, tensorboard and mlflow.
"""
import contextlib
import importlib.util
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request


def need(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        print("skipped: not installed:", ", ".join(missing))
        sys.exit(77)


def run(subject, what, directory, **environment):
    subprocess.run([subject, what, directory], check=True, env={**os.environ, **environment}, timeout=120)


def check(condition, what, *values):
    if not condition:
        print("wrong:", what, *values)
        sys.exit(1)


def tensorboard(subject, directory):
    need("tensorboard")
    run(subject, "tensorboard", directory)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(os.path.join(directory, "interop"))
    events.Reload()
    tags = events.Tags()
    check(sorted(tags["scalars"]) == ["accuracy", "epoch", "train/loss"], "the tags", tags)
    losses = events.Scalars("train/loss")
    check([event.step for event in losses] == [0, 1, 2, 3, 4], "the steps", losses)
    check(all(abs(event.value - 1 / (i + 1)) < 1e-7 for i, event in enumerate(losses)), "the losses", losses)
    check(all(abs(event.wall_time - time.time()) < 300 for event in losses), "the times", losses)
    check([event.value for event in events.Scalars("epoch")] == [0, 1, 2, 3, 4], "the epochs")
    check("note/text_summary" in tags["tensors"], "the text", tags)
    text = events.Tensors("note/text_summary")[0].tensor_proto.string_val[0]
    check(text == b"step", "the text's content", text)


@contextlib.contextmanager
def mlflow_server(directory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with open(os.path.join(directory, "server.log"), "w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{directory}/store.db", "--default-artifact-root", f"{directory}/artifacts"],
            stdout=log, stderr=log, start_new_session=True,
            # Its background jobs are nothing that a tracker uses, and half of its start.
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})
    try:
        for _ in range(1000):
            try:
                urllib.request.urlopen(address + "/health", timeout=2).read()
                break
            except OSError:
                check(server.poll() is None, "the MLflow server has ended", open(log.name).read()[-2000:])
                time.sleep(0.2)
        else:
            check(False, "the MLflow server does not answer", open(log.name).read()[-2000:])
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def mlflow(subject, directory):
    need("mlflow")
    with mlflow_server(directory) as address:
        run(subject, "mlflow", directory, MLFLOW_TRACKING_URI=address)
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=address)
        experiment = client.get_experiment_by_name("interop")
        check(experiment is not None, "there is no experiment 'interop'")
        runs = client.search_runs([experiment.experiment_id])
        check(len(runs) == 1, "the number of runs", runs)
        data, info = runs[0].data, runs[0].info
        check(info.status == "FINISHED", "the run's status", info.status)
        check(data.params == {"lr": "0.1", "layers": "3"}, "the parameters", data.params)
        check(data.tags.get("note") == "step", "the tags", data.tags)
        check(data.metrics.get("accuracy") == 0.75, "the metrics", data.metrics)
        history = client.get_metric_history(info.run_id, "train/loss")
        history = sorted((metric.step, metric.value) for metric in history)
        check(history == [(i, 1 / (i + 1)) for i in range(5)], "the losses", history)


def model_of(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def input_of(torch):
    return torch.arange(12, dtype=torch.float32).sin().view(3, 4)


def safetensors(subject, directory):
    need("safetensors", "torch")
    run(subject, "save", directory)
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    whole = os.path.join(directory, "whole", "model.safetensors")
    model = model_of(torch)
    model.load_state_dict(load_file(whole), strict=True)
    model.eval()
    with torch.no_grad():
        output = model(input_of(torch))
    expected = load_file(os.path.join(directory, "output.safetensors"))["output"]
    check(torch.allclose(output, expected, rtol=1e-6, atol=1e-7), "the model's output", output, expected)
    with safe_open(whole, "pt") as file:
        check(file.metadata() == {"format": "pt"}, "the metadata", file.metadata())
    # Python writes the same bytes.
    again = os.path.join(directory, "again.safetensors")
    save_file(load_file(whole), again, metadata={"format": "pt"})
    check(pathlib.Path(again).read_bytes() == pathlib.Path(whole).read_bytes(), "the bytes of the file")
    for path in pathlib.Path(directory, "state").glob("*.safetensors"):
        load_file(path)
    optimizer = load_file(os.path.join(directory, "state", "optimizer.safetensors"))
    check("state.0.exp_avg" in optimizer, "the optimizer's names", sorted(optimizer))


def accelerate(subject, directory):
    need("accelerate", "torch", "safetensors")
    run(subject, "save", directory)
    import torch
    from accelerate import Accelerator, load_checkpoint_in_model
    from safetensors.torch import load_file

    whole = load_file(os.path.join(directory, "whole", "model.safetensors"))
    for folder in ("whole", "shards"):
        model = model_of(torch)
        load_checkpoint_in_model(model, os.path.join(directory, folder))
        for name, value in model.state_dict().items():
            check(torch.equal(value, whole[name]), f"{folder}: {name}", value, whole[name])

    # Accelerate saves; accel goes on, and so does Accelerate.
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(5)
    model = model_of(torch)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model, optimizer = accelerator.prepare(model, optimizer)

    def step():
        optimizer.zero_grad()
        accelerator.backward(model(input_of(torch)).pow(2).mean())
        optimizer.step()

    step()
    step()
    python = os.path.join(directory, "python")
    accelerator.save_state(python)
    step()
    run(subject, "load", python)
    after = load_file(os.path.join(python, "after.safetensors"))
    for name, value in accelerator.unwrap_model(model).state_dict().items():
        check(torch.allclose(after[name], value, rtol=1e-5, atol=1e-6), f"after a further step: {name}", after[name], value)
    # A checkpoint of accel: Accelerate finds the model under its name.
    load_checkpoint_in_model(accelerator.unwrap_model(model), os.path.join(directory, "state", "model.safetensors"))


def main():
    checks = {f.__name__: f for f in (tensorboard, mlflow, safetensors, accelerate)}
    if len(sys.argv) != 3 or sys.argv[1] not in checks:
        print(__doc__)
        sys.exit(2)
    with tempfile.TemporaryDirectory() as directory:
        checks[sys.argv[1]](os.path.abspath(sys.argv[2]), directory)
    print("right")


if __name__ == "__main__":
    main()
