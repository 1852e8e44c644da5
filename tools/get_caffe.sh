#!/bin/bash
# Real Caffe 1.0 with pycaffe, in .caffe/ of this repository and nowhere else.
#
#     tools/get_caffe.sh
#
# Debian 11 ("bullseye") was the last release to carry Caffe, built for Python 3.9. apt downloads its
# packages and checks their signatures, dpkg-deb unpacks them below .caffe/, pip adds requirements.txt.
# Nothing is installed: the machine lends its C library, its compiler and its configuration.
#
#   DEBIAN_MIRROR   address of a Debian archive, if the machine's own sources have none with this suite
#   DEBIAN_KEYRING  keys that must have signed it
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

repo=$PWD
suite=bullseye
packages="caffe python3-caffe libopenblas0-pthread libpython3.9-dev python3-distutils python-pip-whl"
keyring=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
loader=/lib64/ld-linux-x86-64.so.2

say() { echo "get_caffe: $*"; }
die() { echo "get_caffe: $*" >&2; exit 1; }

mkdir -p .caffe
exec 9> .caffe/lock
flock -n 9 || { say "another set-up is running here; waiting for it"; flock 9; }

# A build has its own directory, named after all that went into it; "current" points at the last complete one.
key=$(cat "$0" requirements.txt | sha256sum | cut -c1-12)
build=.caffe/$key
if [ -e "$build/complete" ] && [ "$(readlink .caffe/current)" = "$key" ]; then
    say "up to date"
    exit 0
fi
rm -rf "$build"
mkdir -p "$build"

# 1. Packages.
apt=$repo/.caffe/apt
mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,empty}
cat > "$apt/apt.conf" <<EOF
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/empty";
Dir::Log "$apt";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
EOF
# To apt, one installed package provides what the machine or the Python index does: 110 MB less to fetch, and
# no old NumPy beside the new one.
cat > "$apt/status" <<EOF
Package: from-elsewhere
Status: install ok installed
Architecture: amd64
Maintainer: none
Version: 1
Provides: libc6 (= 2.31), libc6-dev (= 2.31), perl, perl:any, perl-base, dpkg (= 1.20), debconf (= 2.0), tzdata,
 coreutils (= 8.32), cython3, python3-dateutil, python3-gflags, python3-h5py-serial, python3-ipython,
 python3-matplotlib, python3-networkx, python3-nose, python3-numpy (= 1:1.19), python3-numpy-abi9,
 python3-pandas, python3-pil, python3-protobuf, python3-scipy, python3-six (= 1.16), python3-skimage,
 python3-yaml, ca-certificates, proj-data, gdal-data, fontconfig-config (= 2.13), readline-common,
 mariadb-common, mysql-common
Description: none
EOF
if [ -n "${DEBIAN_MIRROR:-}" ]; then
    mirrors=$DEBIAN_MIRROR
else
    mirrors=$(apt-get update --print-uris | sed -n "s|^'\(.*\)/dists/[^/]*/InRelease'.*|\1|p" | sort -u)
fi
for mirror in $mirrors; do
    echo "deb [signed-by=$keyring] $mirror $suite main"
done > "$apt/sources.list"
export APT_CONFIG=$apt/apt.conf
say "reading the package lists of $suite"
apt-get -q update > "$apt/log" 2>&1 || true
say "fetching the packages"
apt-get -q -y --download-only install $packages >> "$apt/log" 2>&1 || die "apt failed; see $apt/log"

# 2. Unpack.
say "unpacking"
mkdir "$build/root"
ls "$apt"/cache/archives/*.deb | tr '\n' '\0' | xargs -0 -P "$(nproc)" -I{} dpkg-deb -x {} "$build/root"
usr=$build/root/usr
ln -sf ../../../etc/python3.9/sitecustomize.py "$usr/lib/python3.9/sitecustomize.py"

# 3. Wrappers.
mkdir "$build/bin" "$build/lib"
hostlib=$("$loader" --list /bin/sh | sed -n 's|.*=> \(.*\)/libc\.so\.6 .*|\1|p')
for lib in "$hostlib"/{libc,libm,libmvec,libpthread,libdl,librt,libutil,libresolv,libanl,libstdc++,libgcc_s,libgomp}.so.*; do
    case $lib in *\**) ;; *) ln -sf "$lib" "$build/lib/" ;; esac
done
cat > "$build/env" <<'EOF'
# Read by the programs in bin/ with $0 set: where the private Caffe lies, and how to start one of its programs.
here=$(readlink -f "$0")
here=${here%/bin/*}
repo=${here%/.caffe/*}
usr=$here/root/usr
unset PYTHONHOME PYTHONSTARTUP LD_LIBRARY_PATH VIRTUAL_ENV
export PYTHONPATH="$repo/layers:$repo/cython${PYTHONPATH:+:$PYTHONPATH}" PYTHONNOUSERSITE=1
libraries=$here/lib:$usr/lib/x86_64-linux-gnu/openblas-pthread:$usr/lib/x86_64-linux-gnu
libraries=$libraries:$here/root/lib/x86_64-linux-gnu:$usr/lib
EOF
cat > "$build/bin/python" <<'EOF'
#!/bin/sh
. "$(dirname "$(readlink -f "$0")")/../env"
exec /lib64/ld-linux-x86-64.so.2 --argv0 "$usr/bin/python" --library-path "$libraries" "$usr/bin/python3.9" "$@"
EOF
sed 's|--argv0.*|--argv0 "$0" --library-path "$libraries" "$usr/bin/caffe" "$@"|; s|^exec|PATH=$here/bin:$PATH\nexec|' "$build/bin/python" > "$build/bin/caffe"
chmod +x "$build"/bin/*
ln -s python "$build/bin/python3"
ln -sf ../../../bin/python "$usr/bin/python"
ln -sf ../../../bin/python "$usr/bin/python3"
cat > "$build/activate" <<EOF
PATH="$repo/.caffe/bin:\$PATH"
export PATH
EOF

# 4. Python packages.
export PIP_CACHE_DIR=$repo/.caffe/pip PIP_DISABLE_PIP_VERSION_CHECK=1
[ -z "${PIP_CERT:-}" ] || export REQUESTS_CA_BUNDLE=${REQUESTS_CA_BUNDLE:-$PIP_CERT}
ln -s ../x86_64-linux-gnu "$usr/include/python3.9/"    # where pyconfig.h looks for its second half
say "Python packages"
"$build/bin/python" "$(ls "$usr"/share/python-wheels/pip-*.whl)/pip" install -q pip==25.2 
"$build/bin/python" -m pip install --no-warn-script-location --progress-bar off -q -r requirements.txt

touch "$build/complete"
ln -sfn "$key" .caffe/next && mv -T .caffe/next .caffe/current
for link in bin activate root; do ln -sfn "current/$link" ".caffe/$link"; done
say "done"
