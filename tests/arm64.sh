#!/bin/bash
# The tests of the solver and of the CRF on ARM, emulated: everything is built for aarch64 by setup.py and run by qemu.
#
#     sudo apt-get install gcc-aarch64-linux-gnu qemu-user-static
#     tests/arm64.sh [FOLDER [OPTIONS OF PYTEST]]    the folder keeps Debian's Python for arm64 and NumPy's and SciPy's wheels
#
# Needs Debian 12 or a relative with python3.11, whose mirror has arm64, and pip. Nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD place=$(mkdir -p "${1:-output/arm64}" && cd "${1:-output/arm64}" && pwd)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
python=${PYTHON:-python3.11}

if [ ! -e "$place/complete" ]; then
    mirror=$(apt-get update --print-uris | sed -n "s|^'\(.*/debian\)/dists/$suite/InRelease'.*|\1|p" | head -n 1)
    apt=$place/apt
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/none" "$place/arm" "$place/site"
    echo "deb [signed-by=$keyring] $mirror $suite main" > "$apt/sources.list"
    : > "$apt/status"
    {
        apt-config dump | grep '^Acquire::' || true
        for setting in "Dir::State \"$apt\"" "Dir::State::status \"$apt/status\"" "Dir::Cache \"$apt\"" "Dir::Log \"$apt\"" \
            'Dir::Etc::main "/dev/null"' "Dir::Etc::parts \"$apt/none\"" "Dir::Etc::sourcelist \"$apt/sources.list\"" \
            "Dir::Etc::sourceparts \"$apt/none\"" 'APT::Architecture "arm64"' 'APT::Architectures { "arm64"; }' \
            'APT::Sandbox::User ""' 'APT::Install-Recommends "false"' 'Acquire::Languages "none"'; do echo "$setting;"; done
    } > "$apt/apt.conf"
    APT_CONFIG=$apt/apt.conf apt-get -q update
    APT_CONFIG=$apt/apt.conf apt-get -qy --download-only install python3.11 libpython3.11-dev libstdc++6
    for deb in "$apt"/archives/*.deb; do dpkg-deb -x "$deb" "$place/arm"; done
    platforms=(--platform={manylinux2014,manylinux_2_17,manylinux_2_27,manylinux_2_28}_aarch64)
    $python -m pip download -q "${platforms[@]}" --python-version 3.11 --only-binary :all: --dest "$place/wheels" \
        numpy scipy pytest hypothesis platformdirs
    for wheel in "$place"/wheels/*.whl; do $python -m zipfile -e "$wheel" "$place/site"; done
    $python -m venv "$place/venv"
    "$place/venv/bin/pip" install -q "setuptools>=77,<85" "Cython>=3.1,<4"
    mkdir -p "$place/config"
    cp "$place"/arm/usr/lib/python3.11/_sysconfigdata__aarch64-linux-gnu.py "$place/config"
    touch "$place/complete"
fi

# setup.py believes that this is an ARM machine.
include=$place/arm/usr/include
(
    rm -rf "$place/source" && mkdir "$place/source"
    cp -r ccnn cython models prototxt solvers pyproject.toml setup.py MANIFEST.in README.md LICENSE "$place/source"
    cd "$place/source"
    find . -name '*.so' -delete -o -path './cython/*.c' -delete
    PYTHONPATH=$place/config _PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__aarch64-linux-gnu _PYTHON_HOST_PLATFORM=linux-aarch64 \
        CC=aarch64-linux-gnu-gcc LDSHARED="aarch64-linux-gnu-gcc -shared" CFLAGS="-g0 -I$include/python3.11 -I$include" \
        "$place/venv/bin/python" setup.py -q build -b "$place/build" --parallel "$(nproc)"
)
rm -rf "$place/site/ccnn"
cp -r "$place"/build/lib*/ccnn "$place/site"
file=$(find "$place/site/ccnn/solver" -name 'dual.*.so')
readelf -h "$file" | grep -q AArch64

tests=$(mktemp -d)
trap 'rm -rf "$tests"' EXIT
cp tests/*.py "$tests"
cd "$tests"
names=$($python -c "import solver_tests; print(*[name for name in solver_tests.SOLVER_TESTS if name.startswith('test')])")
# Tests that start another Python come back through qemu.
printf '#!/bin/sh\nexec qemu-aarch64-static -L "%s" "%s" "$@"\n' "$place/arm" "$place/arm/usr/bin/python3.11" > "$place/python"
chmod +x "$place/python"
export PYTHONPATH=$place/site PYTHONDONTWRITEBYTECODE=1
"$place/python" -c "import sys; sys.executable = '$place/python'; import pytest; sys.exit(pytest.main(sys.argv[1:]))" \
    -q -rs -p no:cacheprovider "${@:2}" $names
