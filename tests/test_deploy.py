"""The files for operators start what there is."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer
import yaml
from tests.waiting import PATIENCE

from deepmf.cli.app import app
from deepmf.datasets import generate
from deepmf.models.als import ALS
from deepmf.serve.auth import add_key

DEPLOY = Path(__file__).parents[1] / "deploy"


def parsed(words: list[str]) -> None:
    """Parse the words that follow `deepmf`."""
    group: typer.core.TyperGroup = typer.main.get_command(app)  # type: ignore[assignment]
    group.commands[words[0]].make_context("deepmf", words[1:]).close()


def test_the_unit_starts_and_reloads_the_service() -> None:
    unit = (DEPLOY / "deepmf.service").read_text(encoding="utf-8")
    start = re.search(r"^ExecStart=\S+/deepmf (.*)$", unit, re.MULTILINE)
    assert start is not None
    parsed(shlex.split(start[1]))
    assert "ExecReload=/bin/kill -HUP $MAINPID" in unit


def test_the_container_runs_as_an_ordinary_user() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    words = [
        re.findall(r'"([^"]+)"', re.search(rf"^{name} (.*)$", text, re.MULTILINE)[1])
        for name in ("ENTRYPOINT", "CMD")
    ]  # type: ignore[index]
    parsed([*words[0], *words[1]][1:])
    assert text.index("USER deepmf") < text.index("ENTRYPOINT")
    copied = re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE)
    assert all((DEPLOY.parent / name).exists() for names in copied for name in names.split())


def test_the_container_installs_what_the_service_needs_without_torch() -> None:
    sys.path.append(str(DEPLOY.parent / "tools"))
    try:
        from slim_requirements import list_requirements
    finally:
        sys.path.pop()
    head, *stored = (DEPLOY / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert stored == list_requirements() and "slim_requirements" in head
    names = {line.partition("==")[0].lower() for line in stored}
    assert {"numpy", "scipy", "uvicorn", "psycopg-binary"} < names
    assert not any(
        name.startswith(("torch", "nvidia", "triton", "matplotlib", "pillow")) for name in names
    )
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert "-r requirements.txt" in text and "--no-deps ." in text


def test_compose_starts_the_service_with_its_database() -> None:
    services: dict[str, Any] = yaml.safe_load(
        (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    )["services"]
    service = services["deepmf"]
    parsed(["serve", *service["command"]])
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    host = re.search(r"postgresql://deepmf@(\w+)/", " ".join(service["command"]))
    assert host is not None
    assert service["depends_on"] == {host[1]: {"condition": "service_healthy"}}
    assert "healthcheck" in services[host[1]]
    assert all("PASSWORD" not in word for word in service["command"])


def test_manifests_probe_routes_that_exist_and_leave_time_to_finish() -> None:
    from deepmf.serve.routes import router

    paths = {route.path for route in router.routes}  # type: ignore[attr-defined]
    manifests = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    kinds: dict[str, Any] = {manifest["kind"]: manifest for manifest in manifests}
    template = kinds["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    parsed(["serve", *container["args"]])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert f"--port={ports['http']}" in container["args"]
    assert kinds["Service"]["spec"]["ports"][0]["targetPort"] in ports
    # the service itself takes at most 30
    assert template["spec"]["terminationGracePeriodSeconds"] > 30
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in template["spec"]["volumes"]}
    for kind in ("Service", "PodDisruptionBudget"):
        selector = kinds[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == template["metadata"]["labels"]


@pytest.mark.slow
def test_the_command_of_the_container_serves_is_healthy_and_stops(tmp_path: Path) -> None:
    """The steps of the container after its build, in this environment and on another port."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
    (entrypoint,), (command, check) = (
        [
            json.loads(found)
            for found in re.findall(rf"^(?:HEALTHCHECK.* )?{name} (\[.*\])$", text, re.MULTILINE)
        ][::-1]
        for name in ("ENTRYPOINT", "CMD")
    )
    ALS(latent_size=2, epochs=1, seed=0).fit(generate(20, 10, density=0.5, seed=0).matrix).save(
        tmp_path / "model.safetensors"
    )
    key = add_key(tmp_path / "keys.txt", name="phone", role="read")
    words = [word.replace("/data", str(tmp_path)) for word in (*entrypoint[1:], *command)]
    started = [sys.executable, "-m", "deepmf", *words, "--port", "0", "--json"]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            port = json.loads(service.stdout.readline())["address"].rsplit(":", 1)[1]
            subprocess.run(
                [sys.executable, *(word.replace(":8000/", f":{port}/") for word in check[1:])],
                check=True,
            )
            for headers, status in (({}, 401), ({"Authorization": f"Bearer {key}"}, 200)):
                answer = httpx2.get(
                    f"http://127.0.0.1:{port}/v1/model", headers=headers, timeout=PATIENCE
                )
                assert answer.status_code == status
            service.send_signal(signal.SIGTERM)
            assert service.wait(timeout=PATIENCE) == 0
        finally:
            service.kill()


@pytest.mark.slow
def test_manifests_are_valid() -> None:
    if shutil.which("kubeconform") is None:
        pytest.skip("there is no kubeconform")
    subprocess.run(["kubeconform", "-strict", str(DEPLOY / "kubernetes.yaml")], check=True)
