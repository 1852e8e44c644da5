"""The private Caffe: what is in it, how it behaves in hostile surroundings, and how its set-up fails and recovers.

Set-ups here run the real script, apt, dpkg-deb and pip in a scratch copy of the repository. They take their packages
from an archive on disk, made of what this repository's own set-up downloaded and still signed by Debian, so they need
no network. In place of requirements.txt, pip installs a wheel that points at the packages already in .caffe/.
"""
import ctypes
import functools
import http.server
import os
import re
import shutil
import signal
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest
from waiting import wait_for

REPO = Path(__file__).resolve().parent.parent
CAFFE = REPO / ".caffe"

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("CAFFE_PYTHON")), reason="these test the private Caffe, and CAFFE_PYTHON asks for another"
)


def run(*command, env=None, **options):
    """Run to the end; stdout and stderr together, as a user sees them. After 20 minutes it hangs, on any machine."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 1200, **options}
    return subprocess.run([str(part) for part in command], env=env, **options)


def clean_environment(**extra):
    """The user's environment without what tests and make put there."""
    drop = ("PYTHON|PIP_|LD_|VIRTUAL_ENV|OPENBLAS|OMP_|MKL_|GLOG|MAKE|MFLAGS|DEBIAN_|CAFFE|APT_CONFIG|https?_proxy|MPL"
            "|CFLAGS|CXXFLAGS|CC$|CXX$")
    kept = {name: value for name, value in os.environ.items() if not re.match(drop, name, re.I)}
    return {**kept, **{name: str(value) for name, value in extra.items()}}


# ------------------------------------------------------------------------------------------------- the Caffe at hand

SOLVER = """
net: "net.prototxt"  base_lr: 0.1  lr_policy: "fixed"  max_iter: 3  snapshot_prefix: "snap"  solver_mode: CPU
"""
NET = """
layer { name: "data" type: "Python" top: "data" python_param { module: "probe" layer: "Data" } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
        inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "Python" bottom: "fc" top: "loss" loss_weight: 1
        python_param { module: "probe" layer: "Loss" } }
"""
PROBE = '''
import sys
import caffe
import numpy as np

class Data(caffe.Layer):
    def setup(self, bottom, top): top[0].reshape(4, 3)
    def reshape(self, bottom, top): pass
    def forward(self, bottom, top): top[0].data[...] = 1
    def backward(self, top, propagate_down, bottom): pass

class Loss(caffe.Layer):
    """Half the squared scores: every step shrinks them."""
    def setup(self, bottom, top):
        self.log = open("probe.log", "a")
        print(open("/proc/self/cmdline").read().replace("\\0", " "), file=self.log)
        print(np.__version__, sys.executable, file=self.log)
    def reshape(self, bottom, top): top[0].reshape(1)
    def forward(self, bottom, top):
        top[0].data[...] = (bottom[0].data ** 2).sum() / 2
        print("loss", float(top[0].data[0]), file=self.log, flush=True)
    def backward(self, top, propagate_down, bottom): bottom[0].diff[...] = bottom[0].data
'''


def train(folder, caffe_bin, env):
    """Three iterations of a net with Python layers, found through the user's own PYTHONPATH; what the layers saw."""
    folder.joinpath("solver.prototxt").write_text(SOLVER)
    folder.joinpath("net.prototxt").write_text(NET)
    folder.joinpath("probe.py").write_text(PROBE)
    user_path = env.get("PYTHONPATH", "")
    env = {**env, "PYTHONPATH": f"{folder}:{user_path}" if user_path else str(folder)}
    done = run(caffe_bin, "train", "-solver", "solver.prototxt", cwd=folder, env=env)
    assert done.returncode == 0, done.stdout
    assert "Optimization Done." in done.stdout
    assert folder.joinpath("snap_iter_3.caffemodel").stat().st_size > 0
    return folder.joinpath("probe.log").read_text()


def test_caffe_train_runs_python_layers(tmp_path, caffe_bin):
    seen = train(tmp_path, caffe_bin, clean_environment())
    assert "usr/bin/caffe train" in seen                            # Debian's binary, under the machine's loader
    losses = [float(value) for value in re.findall(r"loss (\S+)", seen)]
    assert len(losses) >= 3 and losses[0] > losses[2] > 0           # Python's gradient reached Caffe's own layer


def virtualenv(folder):
    """An active virtual environment of another Python, as far as anybody looks at one."""
    folder.joinpath("bin").mkdir(parents=True)
    folder.joinpath("pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    for name in ("python", "python3"):
        folder.joinpath("bin", name).symlink_to("/bin/false")
    return {"VIRTUAL_ENV": folder, "PATH": f"{folder}/bin:{os.environ['PATH']}"}


def poisoned_path(folder):
    """A PYTHONPATH of some other Python's packages."""
    for name in ("numpy", "google", "skimage"):
        folder.joinpath(name).mkdir(parents=True)
        folder.joinpath(name, "__init__.py").write_text("raise ImportError('made for another Python')\n")
    return {"PYTHONPATH": folder}


def poisoned_libraries(folder):
    folder.mkdir()
    for name in ("libblas.so.3", "libpython3.9.so.1.0", "libprotobuf.so.23", "libcaffe.so.1.0.0"):
        folder.joinpath(name).write_text("not a library")
    return {"LD_LIBRARY_PATH": folder}


@pytest.mark.parametrize("surroundings", [
    virtualenv, poisoned_path, poisoned_libraries, lambda folder: {"PYTHONHOME": "/nonexistent"},
], ids=["virtualenv", "PYTHONPATH", "LD_LIBRARY_PATH", "PYTHONHOME"])
def test_hostile_surroundings(tmp_path, caffe_bin, python_bin, surroundings):
    env = clean_environment(**surroundings(tmp_path / "theirs"))
    done = run(python_bin, "-c", "import caffe, ccnn, numpy; print(numpy.__version__)", env=env, cwd="/")
    assert (done.returncode, done.stdout.strip()) == (0, "1.26.4"), done.stdout
    tmp_path.joinpath("net").mkdir()
    seen = train(tmp_path / "net", caffe_bin, env)
    assert f"1.26.4 {CAFFE.resolve()}" in seen, seen


def test_subprocesses_come_back_to_this_python(tmp_path, python_bin):
    script = tmp_path / "parent.py"
    script.write_text("""
import multiprocessing, subprocess, sys

def version(_):
    import numpy
    return numpy.__version__, sys.executable

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(version, [0]) == [("1.26.4", sys.executable)]
    child = [sys.executable, "-c", "import sys, caffe; print(sys.executable)"]
    assert subprocess.check_output(child, text=True).strip() == sys.executable
    print(subprocess.check_output([sys.executable, "-m", "pip", "--version"], text=True))
    foreign = [sys.argv[1], "-c", "import sys, json; print(sys.version_info[:2])"]
    print(subprocess.check_output(foreign, text=True))      # another Python does not notice who started it
""")
    foreign = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or python_bin
    done = run(python_bin, script, foreign, env=clean_environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert str(CAFFE.resolve()) in done.stdout


def test_openblas_uses_every_core_and_obeys(python_bin):
    ask = """
import caffe, ctypes
blas = ctypes.CDLL("libblas.so.3")
blas.openblas_get_corename.restype = ctypes.c_char_p
print(blas.openblas_get_num_threads(), blas.openblas_get_corename().decode())
print({line.split()[-1] for line in open("/proc/self/maps") if "/libblas.so.3" in line})
"""
    cores = len(os.sched_getaffinity(0))
    flags = Path("/proc/cpuinfo").read_text()
    for setting, threads in ({}, cores), ({"OPENBLAS_NUM_THREADS": 1}, 1):
        done = run(python_bin, "-c", ask, env=clean_environment(**setting))
        count, core = done.stdout.split()[:2]
        assert int(count) == threads, done.stdout
        assert "openblas-pthread/libblas.so.3" in done.stdout       # not the reference BLAS
        assert "avx2" not in flags or core.lower() in ("haswell", "skylakex", "zen"), core


def test_activate_in_any_shell(tmp_path):
    activate = f". '{CAFFE}/activate'"
    ask = "command -v caffe && command -v python3 && command -v ccnn && echo $PATH && ccnn --version && " \
          "python3 -c 'import ccnn, caffe'"
    for shell in "bash", "sh":
        done = run(shell, "-uc", f"{activate} && {activate} && {ask}", cwd=tmp_path, env=clean_environment())
        assert done.returncode == 0, done.stdout
        lines = done.stdout.splitlines()
        assert lines[:3] == [f"{CAFFE}/bin/caffe", f"{CAFFE}/bin/python3", f"{CAFFE}/bin/ccnn"]
        assert lines[3].count(f"{CAFFE}/bin") == 1 and re.fullmatch(r"\d+\.\d+\.\d+", lines[4])


def test_solver_leaves_denormal_numbers_alone():
    """-ffast-math at link time would flush them to zero in the whole process, NumPy and Caffe included."""
    import ccnn  # noqa: F401  the import is what would do it

    tiny = ctypes.c_double(5e-324)
    assert tiny.value / 1.0 > 0 and tiny.value * 2.0 == 1e-323


# ------------------------------------------------------------------------------------------------------- the set-up


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A Debian archive on disk with the packages of this repository's own set-up, under Debian's signature."""
    folder = tmp_path_factory.mktemp("archive").resolve()
    apt = CAFFE / "apt"
    release = next(apt.glob("lists/*_dists_bullseye_InRelease"), None)
    if release is None:
        pytest.skip("needs the downloads of tools/get_caffe.sh in .caffe/apt")
    index = next(apt.glob("lists/*_dists_bullseye_main_binary-amd64_Packages"))
    suite = folder / "dists/bullseye"
    suite.joinpath("main/binary-amd64").mkdir(parents=True)
    shutil.copy(release, suite / "InRelease")
    suite.joinpath("main/binary-amd64/Packages").symlink_to(index)
    text = index.read_text()
    debs = {deb.name.replace("%3a", ":"): deb for deb in apt.glob("archives/*.deb")}
    for package in text.split("\n\n"):
        name, version, architecture, filename = (
            re.search(rf"^{field}: (.*)", package, re.M)
            for field in ("Package", "Version", "Architecture", "Filename"))
        deb = debs.get(f"{name[1]}_{version[1]}_{architecture[1]}.deb") if name else None
        if deb:
            folder.joinpath(filename[1]).parent.mkdir(parents=True, exist_ok=True)
            folder.joinpath(filename[1]).symlink_to(deb)
    return folder


class Copy:
    """A scratch copy of the repository, as far as the set-up reads it, and somebody's surroundings to run it in."""

    def __init__(self, folder, archive=None, **extra):
        self.folder = folder
        for name in "tools/get_caffe.sh", "Makefile", "setup.py":
            folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, folder / name)
        folder.joinpath("requirements.txt").write_text("all_of_them==1\n")
        self.home = folder.parent / f"{folder.name} home"
        self.temporary = folder.parent / f"{folder.name} tmp"
        wheels = folder.parent / "wheels"
        for made in self.home, self.temporary, wheels:
            made.mkdir()
        with zipfile.ZipFile(wheels / "all_of_them-1-py3-none-any.whl", "w") as wheel:
            installed = next((CAFFE / "current/root/usr/local/lib").glob("python3.9/dist-packages"), CAFFE)
            wheel.writestr("all_of_them.pth", f"{installed.resolve()}\n")
            for name, text in (
                ("METADATA", "Metadata-Version: 2.1\nName: all_of_them\nVersion: 1\n"),
                ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
                ("RECORD", ""),
            ):
                wheel.writestr(f"all_of_them-1.dist-info/{name}", text)
        self.env = clean_environment(
            HOME=self.home, TMPDIR=self.temporary, PIP_NO_INDEX=1, PIP_FIND_LINKS=wheels, **extra)
        if archive:
            self.env["DEBIAN_MIRROR"] = f"file://{archive}"

    def set_up(self, **extra):
        env = {**self.env, **{name: str(value) for name, value in extra.items()}}
        return run(self.folder / "tools/get_caffe.sh", env=env, cwd="/")

    def works(self):
        python = self.folder / ".caffe/bin/python"
        return python.exists() and run(python, "-c", "import caffe", env=self.env, cwd="/").returncode == 0

    def kill_when(self, ready):
        """Start the set-up and kill all of it, apt, dpkg-deb and pip included, as soon as ready() holds."""
        process = subprocess.Popen([str(self.folder / "tools/get_caffe.sh")], env=self.env, start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_for(ready, "the moment of the kill", process)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL


def snapshot(*folders):
    """When every directory last gained or lost an entry, and every file's size and time of change."""
    seen = {}
    for top in folders:
        for folder, names, files in os.walk(top):
            names[:] = [name for name in names if name != "__pycache__"]
            seen[folder] = os.stat(folder).st_mtime_ns
            if top != "/usr":       # a new or replaced file there shows in its directory
                for name in files:
                    status = os.lstat(os.path.join(folder, name))
                    seen[os.path.join(folder, name)] = status.st_size, status.st_mtime_ns
    return seen


@pytest.mark.faults
def test_killed_set_up_completes_and_writes_nothing_elsewhere(tmp_path, archive):
    copy = Copy(tmp_path / "with a space", archive)
    copy.home.joinpath(".profile").write_text("")
    caffe = copy.folder / ".caffe"
    outside = "/usr", "/etc/apt", "/var/lib/dpkg", "/var/lib/apt/lists", "/var/cache/apt", copy.home, copy.temporary
    before = snapshot(*outside)

    def count(pattern):
        return sum(1 for _ in caffe.glob(pattern))

    for point in (
        lambda: caffe.joinpath("lock").exists(),                    # before anything is there
        lambda: caffe.joinpath("apt/sources.list").exists(),        # apt reads the lists
        lambda: count("apt/archives/*.deb") > 60,                   # apt fetches
        lambda: count("builds/*/*/usr/lib/x86_64-linux-gnu/*") > 100,       # dpkg-deb unpacks
        lambda: count("builds/*/unpacked") == 1,                    # pip is about to install
        lambda: count("builds/*/*/usr/local/lib/*/*/*.pth"),        # pip has; the last check runs
    ):
        copy.kill_when(point)
        assert not caffe.joinpath("bin/python").exists()            # half a Caffe is never shown
        if caffe.joinpath("apt/archives/partial").is_dir():         # as a fetch that was killed leaves it
            caffe.joinpath("apt/archives/partial/half_1_amd64.deb").touch()

    first = subprocess.Popen([str(copy.folder / "tools/get_caffe.sh")], env=copy.env, stdout=subprocess.PIPE, text=True)
    wait_for(caffe.joinpath("lock").exists, "the lock", first)
    second = copy.set_up()                                          # two at once
    output = first.communicate()[0]
    assert first.returncode == second.returncode == 0, output + second.stdout
    assert "ready" in output + second.stdout and "up to date" in output + second.stdout
    assert copy.works()
    assert not list(caffe.joinpath("tmp").iterdir())

    # A later set-up that fails, here at the last step, leaves the old Caffe in place.
    copy.folder.joinpath("requirements.txt").write_text("no_such_package==1\n")
    failed = copy.set_up()
    assert failed.returncode != 0
    assert "no_such_package" in failed.stdout.splitlines()[-1]
    assert copy.works()

    after = snapshot(*outside)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set()


def tools_without(folder, *missing, **instead):
    """A PATH with every program of the machine but some, and stand-ins that print what another machine would."""
    folder.mkdir()
    for place in [*os.environ["PATH"].split(":"), "/usr/bin", "/bin", "/usr/sbin", "/sbin"]:
        for program in os.scandir(place) if os.access(place, os.R_OK) else ():
            link = folder / program.name
            if program.name not in (*missing, *instead) and not link.is_symlink():
                link.symlink_to(program.path)
    for name, output in instead.items():
        folder.joinpath(name).write_text(f"#!/bin/sh\ncat <<END\n{output}\nEND\n")
        folder.joinpath(name).chmod(0o755)
    return {"PATH": folder}


REMOVED = "/usr/share/keyrings/debian-archive-removed-keys.gpg"


@pytest.mark.parametrize("machine, message", [
    (lambda new: tools_without(new, uname="aarch64"), r"aarch64.*CAFFE_PYTHON"),
    (lambda new: tools_without(new, "apt-get"), r"apt-get is missing.*CAFFE_PYTHON"),
    (lambda new: tools_without(new, "dpkg-deb"), r"dpkg-deb is missing"),
    (lambda new: tools_without(new, "gcc"), r"compiler \(gcc\).*apt-get install build-essential"),
    (lambda new: tools_without(new, "g++"), r"compiler \(g\+\+\).*apt-get install build-essential"),
    (lambda new: tools_without(new, "make"), r"make is missing.*apt-get install make"),
    (lambda new: tools_without(new, getconf="glibc 2.31"), r"glibc 2\.31 is too old, 2\.33"),
    (lambda new: tools_without(new, df="a b c d\n/dev/sda 1 1 204800"), r"200 MB free, \d+ MB are needed"),
    (lambda new: {"DEBIAN_KEYRING": new}, r"keys are missing.*apt-get install debian-archive-keyring"),
    (lambda new: {"DEBIAN_KEYRING": REMOVED}, r"no key in .*removed-keys.gpg signed bullseye"),
    (lambda new: {"DEBIAN_MIRROR": f"file://{new}"}, r"no Debian suite \"bullseye\" on file:.*DEBIAN_MIRROR"),
    (lambda new: {"DEBIAN_MIRROR": "http://127.0.0.1:9/debian"}, r"no network.*127\.0\.0\.1.*connection"),
    (lambda new: {**tools_without(new, **{"apt-get": ""}), "DEBIAN_MIRROR": ""}, r"apt knows no archive.*MIRROR"),
], ids=["arch", "apt", "dpkg", "gcc", "g++", "make", "glibc", "disk", "keyring", "key", "suite", "network", "sources"])
def test_what_the_machine_lacks_is_said_in_one_line(tmp_path, archive, machine, message):
    copy = Copy(tmp_path / "copy", archive)
    extra = machine(tmp_path / "new")
    failed = copy.set_up(**extra)
    assert failed.returncode != 0
    errors = [line for line in failed.stdout.splitlines() if not re.match(r"get_caffe: (reading|fetching)", line)]
    assert len(errors) == 1, failed.stdout
    assert re.match("get_caffe: error: .*" + message, errors[0])
    assert not copy.folder.joinpath(".caffe/bin").exists()


@pytest.mark.faults
def test_a_release_that_has_left_the_mirrors_comes_from_the_archive_of_former_ones(tmp_path, archive):
    """The machine's mirror lacks it; the archive beside that has it. One line says which served."""
    site = tmp_path / "site"
    site.joinpath("debian").mkdir(parents=True)
    site.joinpath("debian-archive").mkdir()
    site.joinpath("debian-archive/debian").symlink_to(archive)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    surroundings = tools_without(tmp_path / "new", "apt-get")
    knows = tmp_path / "new/apt-get"            # this machine's sources, as apt tells them
    knows.write_text(f"""#!/bin/sh
case "$*" in *--print-uris*) echo "'{address}/debian/dists/trixie/InRelease' trixie_InRelease 0" ;;
*) exec {shutil.which("apt-get")} -o Acquire::http::Proxy=DIRECT "$@" ;; esac
""")
    knows.chmod(0o755)
    try:
        copy = Copy(tmp_path / "one/copy")
        done = copy.set_up(**surroundings)
        assert done.returncode == 0 and copy.works(), done.stdout
        assert f"get_caffe: fetching Caffe and its libraries from {address}/debian-archive/debian (archive of former" \
               " releases)" in done.stdout.splitlines()
        site.joinpath("debian-archive/debian").unlink()
        failed = Copy(tmp_path / "two/copy").set_up(**surroundings)
        assert failed.returncode == 1 and re.search(r'no Debian suite "bullseye" on.*/debian .*/debian-archive/debian; '
                                                    "set DEBIAN_MIRROR", failed.stdout), failed.stdout
        site.joinpath("debian").rmdir()
        site.joinpath("debian").symlink_to(archive)         # the mirror has it again
        done = Copy(tmp_path / "three/copy").set_up(**surroundings)
        assert f"get_caffe: fetching Caffe and its libraries from {address}/debian" in done.stdout.splitlines()
    finally:
        server.shutdown()
        server.server_close()


def test_altered_archive_is_refused(tmp_path, archive):
    altered = tmp_path / "archive"
    altered.joinpath("dists/bullseye").mkdir(parents=True)
    text = archive.joinpath("dists/bullseye/InRelease").read_text()
    altered.joinpath("dists/bullseye/InRelease").write_text(text.replace("Origin: Debian", "Origin: Debiam", 1))
    failed = Copy(tmp_path / "copy").set_up(DEBIAN_MIRROR=f"file://{altered}")
    assert failed.returncode != 0
    assert "no key in" in failed.stdout


@pytest.mark.faults
def test_disk_that_fills_up(tmp_path, archive):
    """A real full disk: 150 MB of memory, mounted where nobody else sees it, on a machine that promises more."""
    copy = Copy(tmp_path / "copy", archive, **tools_without(tmp_path / "new", df="a b c d\n/dev/sda 1 1 99999999"))
    copy.folder.joinpath(".caffe").mkdir()
    script = 'mount -t tmpfs -o size=150m none "$0/.caffe" && exec "$0/tools/get_caffe.sh"'
    done = run("unshare", "-rm", "sh", "-c", script, copy.folder, env=copy.env)
    if "unshare:" in done.stdout or "mount:" in done.stdout:
        pytest.skip("no private mounts on this machine: " + done.stdout.strip())
    assert done.returncode != 0
    assert re.match("get_caffe: error: the disk is full", done.stdout.splitlines()[-1]), done.stdout


def test_directory_that_cannot_be_written(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    copy = Copy(tmp_path / "copy")
    copy.folder.chmod(0o555)
    failed = copy.set_up()
    copy.folder.chmod(0o755)
    assert failed.returncode != 0 and "cannot write to" in failed.stdout


# ---------------------------------------------------------------------------------------------- a Caffe of one's own


def own(copy, **extra):
    """The set-up's last line when it is asked for another Caffe."""
    done = copy.set_up(**extra)
    assert len(done.stdout.splitlines()) == 1, done.stdout
    return done.returncode, done.stdout


def test_unusable_own_caffe_is_explained(tmp_path, python_bin):
    copy = Copy(tmp_path / "copy")
    code, said = own(copy, CAFFE_PYTHON="/no/such/python")
    assert code and "CAFFE_PYTHON=/no/such/python is no program" in said

    plain = tmp_path / "plain"
    plain.write_text(f"#!/bin/sh\nexec '{python_bin}' -S \"$@\"\n")      # without any packages
    plain.chmod(0o755)
    code, said = own(copy, CAFFE_PYTHON=plain)
    assert code and "cannot import caffe" in said and "No module named 'caffe'" in said

    theirs = tmp_path / "theirs/caffe"                                  # stands for a build without Python layers
    theirs.mkdir(parents=True)
    theirs.joinpath("__init__.py").write_text("def layer_type_list(): return ['Convolution']")
    code, said = own(copy, CAFFE_PYTHON=plain, PYTHONPATH=theirs.parent)
    assert code and "has no Python layers" in said

    theirs.joinpath("__init__.py").write_text("def layer_type_list(): return ['Python']")
    code, said = own(copy, CAFFE_PYTHON=plain, PYTHONPATH=theirs.parent)
    assert code and "lacks numpy scipy" in said

    code, said = own(copy, CAFFE_PYTHON=python_bin, CAFFE="/bin/false")
    assert code and "CAFFE=/bin/false does not run" in said
    assert not copy.folder.joinpath(".caffe/bin").exists()


@pytest.mark.faults
def test_make_with_own_caffe(tmp_path, python_bin, caffe_bin):
    """make, with another Caffe (this one, from outside), compiles for it; a second make finds nothing to do."""
    copy = Copy(tmp_path / "with a space")
    source = copy.folder / next(REPO.glob("cython/**/dual.pyx")).relative_to(REPO)
    source.parent.mkdir(parents=True)
    source.write_text("def answer():\n    return 42\n")           # a solver that compiles in a second
    copy.folder.joinpath("ccnn/solver").mkdir(parents=True)
    copy.folder.joinpath("ccnn/__init__.py").touch()
    copy.folder.joinpath("ccnn/solver/__init__.py").touch()
    python = tmp_path / "python"                    # ours, but without the library of this repository
    python.write_text(f"#!/bin/sh\nPYTHONPATH=\"${{PYTHONPATH:-}}:{REPO}/layers\" exec '{python_bin}' \"$@\"\n")
    python.chmod(0o755)
    env = {**copy.env, "CAFFE_PYTHON": python, "CAFFE": caffe_bin}

    def make():
        done = run("make", "-C", copy.folder, env=env)
        assert done.returncode == 0 and "everything is up to date" in done.stdout, done.stdout
        return done.stdout

    def ask(question):
        # From elsewhere: with -c, Python looks for ccnn in the current directory first.
        code = f"import caffe, ccnn.solver.dual; print({question})"
        return run(copy.folder / ".caffe/bin/python", "-c", code, env=copy.env, cwd="/").stdout.strip()

    assert "setup.py" in make()
    built = next(copy.folder.glob("ccnn/solver/dual.*.so"))
    stamp = built.stat().st_mtime_ns
    assert "setup.py" not in make() and built.stat().st_mtime_ns == stamp
    assert ask("ccnn.solver.dual.answer()") == "42"
    assert Path(ask("ccnn.solver.dual.__file__")).resolve() == built
    assert run(copy.folder / ".caffe/bin/caffe", "--version", env=copy.env).returncode == 0

    included = source.with_name("number.pxd")       # every kind of source is compiled again when it changes
    included.write_text("cdef enum:\n    NUMBER = 43\n")
    source.write_text("from number cimport NUMBER\n\ndef answer():\n    return NUMBER\n")
    assert "setup.py" in make() and ask("ccnn.solver.dual.answer()") == "43"
    included.write_text("cdef enum:\n    NUMBER = 44\n")
    assert "setup.py" in make() and ask("ccnn.solver.dual.answer()") == "44"
    assert "setup.py" not in make()


def test_make_help_names_every_target():
    done = run("make", "-C", REPO, "help", env=clean_environment())
    for target in "all", "test", "lint", "test-package", "demo", "bench", "clean", "help":
        assert re.search(rf"^make {target} +\S", done.stdout, re.M), done.stdout
