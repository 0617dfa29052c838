"""The script of a Slurm job, and what is refused before one is submitted; tests/slurm runs real ones."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from charllm.errors import SpecError
from charllm.measure.launchers.plan import Plan
from charllm.measure.launchers.slurm import SETUP_FAILED, complete, count_steps, write_script
from charllm.measure.record import NODES

INSIDE = {"SLURM_JOB_ID": "12", "SLURM_NNODES": "4"}


@pytest.fixture
def with_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def test_without_slurm_the_launcher_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError, match="expected a machine with Slurm: sbatch is not installed here"):
        complete(Plan("slurm"), {})


@pytest.mark.usefixtures("with_tools")
def test_inside_an_allocation_its_nodes_are_used() -> None:
    assert complete(Plan("slurm"), INSIDE).nodes == 4
    assert complete(Plan("slurm", nodes=2), INSIDE).nodes == 2
    with pytest.raises(SpecError, match="--nodes: got 5; expected at most 4, the nodes of this allocation"):
        complete(Plan("slurm", nodes=5), INSIDE)
    with pytest.raises(SpecError, match="--partition: got 'main'; expected nothing inside the allocation of job 12"):
        complete(Plan("slurm", partition="main"), INSIDE)


def test_a_script_asks_for_what_the_plan_says(tmp_path: Path) -> None:
    plan = Plan("slurm", nodes=2, gpus_per_node=8, partition="main", account="me", time="00:10:00", prefix=("numactl",))
    lines = write_script(plan, tmp_path / "a b%c", Path("/work here")).splitlines()
    asked = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert {"--nodes=2", "--gres=gpu:8", "--partition=main", "--account=me", "--time=00:10:00", "--exclusive"} <= {
        *asked
    }
    assert f"--output='{tmp_path}/a b%%c/slurm.log'" in asked
    assert {"--no-requeue", "--no-kill"} <= {*asked}
    assert "cd '/work here' || exit 2" in lines
    assert lines[-1].startswith("srun --nodes=2 --ntasks=2 --ntasks-per-node=1 ")
    assert " numactl " in lines[-1]
    assert "#SBATCH --exclusive" not in write_script(Plan("slurm", shared=True), tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("prefix", "own"),
    [
        ("numactl --interleave=all", True),
        ("apptainer exec --nv image.sif", False),
        ("env A=1 /usr/bin/podman run image", False),
        ("--container-image=nvcr.io#nvidia/nemo", False),
    ],
)
def test_behind_a_container_runtime_the_agent_is_the_images_python(prefix: str, own: bool, tmp_path: Path) -> None:
    script = write_script(Plan("slurm", prefix=tuple(prefix.split())), tmp_path, tmp_path)
    python = sys.executable if own else "python3"
    assert f"{prefix} {python} -m charllm.measure.node" in script.replace("'", "")


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        ("export A=1", None),
        ("module load nothing", "module load nothing: "),
        ("false", "false: "),
        ("echo 'ERROR:105: Unable to locate a modulefile' >&2", "Unable to locate a modulefile"),
    ],
)
def test_a_line_of_setup_that_fails_ends_the_job(tmp_path: Path, line: str, failed: str | None) -> None:
    script = write_script(Plan("slurm", setup=(line,)), tmp_path, tmp_path)
    script = script[: script.rindex("srun ")] + 'test "$A" = 1 && echo ready'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    if failed is None:
        assert (done.returncode, done.stdout) == (0, "ready\n")
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert failed in (tmp_path / SETUP_FAILED).read_text()


def test_steps_are_those_of_the_rank_that_marked_most(tmp_path: Path) -> None:
    for rank, steps in ((0, 4), (1, 2)):
        place = tmp_path / NODES / f"n{rank}"
        place.mkdir(parents=True)
        (place / f"marks-{rank}-1.csv").write_text("1,1,step,,\n" * steps)
    assert count_steps(tmp_path) == 3
    assert count_steps(tmp_path / "nowhere") == 0
