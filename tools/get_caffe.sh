#!/bin/bash
# Bring real Caffe 1.0 with pycaffe and Python layers into .caffe/ of this repository, and touch nothing else.
#
#     tools/get_caffe.sh          (make calls it; run it again at any time, also after an interruption)
#
# Debian 11 ("bullseye") was the last release to carry Caffe, built for Python 3.9. apt downloads its packages and
# checks their signatures, dpkg-deb unpacks them below .caffe/, pip adds requirements.txt. Nothing gets installed: the
# machine lends its C library, its compiler, and the addresses in its apt and pip configuration.
#
#   CAFFE_PYTHON    use this Python, which can import a Caffe of your own (a GPU build), and download nothing;
#   CAFFE           the caffe program that belongs to it (default: the one on PATH, or in its build tree)
#   DEBIAN_MIRROR   a Debian archive that has the suite, in place of the machine's own sources. Without it these are tried
#                   first, then the archive of former releases beside each of them
#   DEBIAN_KEYRING  the keys one of which must have signed it
set -Eeuo pipefail

suite=bullseye
python="python3.9 libpython3.9-dev python3-distutils python-pip-whl"     # pip begins to work with these
packages="$python caffe python3-caffe libopenblas0-pthread"
megabytes=1100

say() { echo "get_caffe: $*"; }
die() { echo "get_caffe: error: $*" >&2; exit 1; }

script=$(readlink -f "$0")
repo=${script%/*/*}
cd "$repo"
mkdir -p .caffe/tmp .caffe/packages 2> /dev/null && [ -w .caffe ] || die "cannot write to $repo/.caffe; give yourself that directory"
caffe=$repo/.caffe
ln -sfn ../../ccnn .caffe/packages/ccnn        # the library, on the path of python and caffe by its own name
log=$caffe/log

# One set-up at a time. Children inherit the lock, so that a next run waits for the orphans of a killed one.
exec 9> .caffe/lock
flock -n 9 || { say "another set-up is at work here; waiting for it"; flock 9; }

# Every build has a directory of its own, named after all that goes into it, and "current" points at the last complete
# one: an interrupted build is never seen, and the old one serves until the moment the link is replaced.
use() {
    ln -sfn "builds/$1" .caffe/tmp/current
    mv -T .caffe/tmp/current .caffe/current
    for link in bin root activate; do ln -sfn "current/$link" ".caffe/$link"; done
}
if [ -n "${CAFFE_PYTHON:-}" ]; then
    key=own-$(sha256sum "$script" - <<< "$repo $CAFFE_PYTHON ${CAFFE:-}" | sha256sum | cut -c1-12)
else
    key=$(cat "$script" requirements.txt - <<< "$repo" | sha256sum | cut -c1-12)
fi
build=$caffe/builds/$key
if [ -e "$build/complete" ]; then
    [ "$(readlink .caffe/current)" = "builds/$key" ] || use "$key"
    say "up to date"
    exit 0
fi

# The shell that sources this finds python3 and caffe; so do the tools, whose first line asks for python3.
write_activate() {
    cat > "$build/activate" <<EOF
# Put this repository's Caffe first: source .caffe/activate
repo=$(printf %q "$repo")
case ":\$PATH:" in *":\$repo/.caffe/bin:"*) ;; *) export PATH="\$repo/.caffe/bin:\$PATH" ;; esac
case ":\${PYTHONPATH:-}:" in *":\$repo/layers:"*) ;; *) export PYTHONPATH="\$repo/layers:\$repo/.caffe/packages\${PYTHONPATH:+:\$PYTHONPATH}" ;; esac
unset repo
EOF
}

# The command, beside python. The current folder is not on its path: it may be a stranger's.
write_command() {
    cat > "$1/ccnn" <<'EOF'
#!/bin/sh
bin=$(dirname "$(readlink -f "$0")")
exec "$bin/python" -c 'import sys; sys.path = [place for place in sys.path if place]; from ccnn.cli import main; main()' "$@"
EOF
    chmod +x "$1/ccnn"
}

# ------------------------------------------------------------------------------------------- a Caffe of the user's own
if [ -n "${CAFFE_PYTHON:-}" ]; then
    python=$(command -v "$CAFFE_PYTHON") || die "CAFFE_PYTHON=$CAFFE_PYTHON is no program; give the path of a Python"
    python=$(cd "$(dirname "$python")" && pwd)/${python##*/}
    found=$("$python" - 2> "$log" <<'EOF'
import os, sys
import caffe
if "Python" not in caffe.layer_type_list():
    sys.exit("no Python layers")
missing = []
for name in ("numpy", "scipy", "PIL", "tqdm", "Cython", "setuptools"):
    try:
        __import__(name)
    except ImportError:
        missing.append(name)
if missing:
    sys.exit("lacks " + " ".join(missing))
print(os.path.join(os.path.dirname(caffe.__file__), "../../build/tools/caffe"))
EOF
    ) || case $(tail -n 1 "$log") in
        "no Python layers") die "the Caffe of CAFFE_PYTHON=$CAFFE_PYTHON has no Python layers; build it with WITH_PYTHON_LAYER := 1" ;;
        "lacks "*) die "CAFFE_PYTHON=$CAFFE_PYTHON $(tail -n 1 "$log"); install them with: $CAFFE_PYTHON -m pip install -r requirements.txt" ;;
        *) die "CAFFE_PYTHON=$CAFFE_PYTHON cannot import caffe ($(tail -n 1 "$log")); add the python folder of your Caffe to PYTHONPATH, or unset CAFFE_PYTHON" ;;
    esac
    program=${CAFFE:-$(command -v caffe || echo "$found")}
    "$program" --version > "$log" 2>&1 || die "CAFFE=$program does not run ($(tail -n 1 "$log")); set CAFFE to the caffe program of your build"
    mkdir -p "$build/bin"
    for name in python python3 caffe; do
        [ $name = caffe ] && target=$(readlink -f "$program") || target=$python
        cat > "$build/bin/$name" <<EOF
#!/bin/sh
case ":\${PYTHONPATH:-}:" in
    *:$(printf %q "$repo/layers"):*) ;;
    *) export PYTHONPATH=$(printf %q "$repo/layers:$repo/.caffe/packages${PYTHONPATH:+:$PYTHONPATH}")\${PYTHONPATH:+:\$PYTHONPATH} ;;
esac
exec $(printf %q "$target") "\$@"
EOF
        chmod +x "$build/bin/$name"
    done
    write_command "$build/bin"
    write_activate
    touch "$build/complete"
    use "$key"
    say "using your own Caffe: $python, $program"
    exit 0
fi

# ----------------------------------------------------------------------------------------- what the machine must have
[ "$(uname -m)" = x86_64 ] || die "this machine is $(uname -m), and Debian's Caffe is for x86_64; build Caffe yourself and set CAFFE_PYTHON"
for program in apt-get dpkg-deb; do
    command -v $program > /dev/null || die "$program is missing: this needs Debian, Ubuntu or a relative; elsewhere use a Debian container, or your own Caffe through CAFFE_PYTHON"
done
glibc=$(getconf GNU_LIBC_VERSION 2> /dev/null) || glibc="glibc 0"
[ "$(printf '%s\n' "${glibc#* }" 2.33 | sort -V | head -n 1)" = 2.33 ] || die "$glibc is too old, 2.33 is needed (Debian 12, Ubuntu 22.04); use a newer container, or your own Caffe through CAFFE_PYTHON"
keyring=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
[ -r "$keyring" ] || die "the archive's keys are missing ($keyring); type: sudo apt-get install debian-archive-keyring"
export TMPDIR=$caffe/tmp CC=${CC:-gcc} CXX=${CXX:-g++}
for compiler in "$CC" "$CXX"; do
    echo '#include <math.h>' | $compiler -xc++ -fsyntax-only - 2> "$log" || echo '#include <math.h>' | $compiler -xc -fsyntax-only - 2> "$log" ||
        die "no working compiler ($compiler); type: sudo apt-get install build-essential"
done
command -v make > /dev/null || die "make is missing; type: sudo apt-get install make"
free() { echo $(($(df -Pk .caffe | awk 'NR == 2 { print $4 }') / 1024)); }
[ "$(free)" -ge $megabytes ] || die "the disk has $(free) MB free, $megabytes MB are needed in $repo; make room and run this again"

# Whatever fails from here on is explained by what it wrote in the log.
explain() {
    trap - ERR
    set +e
    local why network='could not (resolve|connect)|unable to connect|unreachable|timed out|name resolution|connection (failed|refused)|ConnectionError'
    why=$(grep -E '^ *(E:|ERROR|dpkg-deb:|.*Error:)' "$log" | grep -v "Unable to locate\|have been ignored\|Couldn't find" | tail -n 1)
    if [ "$(free)" -lt 20 ] || grep -qi 'no space left\|enough free space' "$log"; then
        die "the disk is full; $megabytes MB are needed in $repo; make room and run this again"
    elif grep -qiE "$network" "$log"; then
        die "no network ($(grep -iE "$network" "$log" | head -n 1 | sed 's/^[ WE:]*//')); check the connection and the proxy, then run this again"
    elif grep -q 'NO_PUBKEY\|not signed\|EXPKEYSIG\|signatures* .* verif\|Missing key\|Sub-process.*sqv' "$log"; then
        die "no key in $keyring signed $suite on$mirrors; update debian-archive-keyring, or set DEBIAN_KEYRING or DEBIAN_MIRROR"
    elif grep -q 'does not have a Release file' "$log"; then
        die "no Debian suite \"$suite\" on$mirrors; set DEBIAN_MIRROR to the address of a Debian archive that has it (old suites move to Debian's archive of former releases)"
    fi
    die "$1 failed: $why (all of it: $log)"
}
step() { doing=$*; say "$doing"; : > "$log"; }
trap 'explain "${doing:-the set-up}"' ERR

# ------------------------------------------------------------------------------------------------------- the packages
apt=$caffe/apt
debs=$apt/archives
mkdir -p "$apt/lists/partial" "$debs/partial" "$apt/none"
# apt keeps the machine's way to the network (proxies, certificates) and nothing else of its configuration, which may
# name other directories and programs to run.
{
    apt-config dump | grep '^Acquire::' || true
    cat <<EOF
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Log "$apt";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "$apt/none";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/none";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::GzipIndexes "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
EOF
} > "$apt/apt.conf"
# apt believes that one installed package provides all that the machine or pip does: half the download, and no old
# NumPy beside the new one.
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
 python3-yaml, ca-certificates, proj-data (= 9), readline-common,
 mariadb-common, mysql-common
Description: none
EOF
# Of the machine's sources, those that have the suite signed by Debian will do; apt ignores the others. "update
# --print-uris" answers also where no list was ever fetched.
machine=${DEBIAN_MIRROR:-$(apt-get update --print-uris 2> "$log" | sed -n "s|^'\(.*\)/dists/[^/]*/InRelease'.*|\1|p" | sort -u | paste -sd ' ')}
[ -n "$machine" ] || die "apt knows no archive on this machine; set DEBIAN_MIRROR to the address of a Debian archive that has \"$suite\""
# A release that has left support moves to the archive of former releases: debian-archive/debian beside a mirror's
# debian, and archive.DOMAIN beside deb.DOMAIN. What is there expires without being replaced.
former=$(for mirror in $machine; do
    sed -n 's|/debian/*$|/debian-archive/debian|p' <<< "$mirror"
    sed -n 's|://deb\.|://archive.|p' <<< "$mirror"
done | sort -u | paste -sd ' ')
[ -z "${DEBIAN_MIRROR:-}" ] || former=
served() { apt-cache policy caffe 2> /dev/null | sed -n "s|^ *[0-9]* \(.*\) $suite/main .*|\1|p" | head -n 1; }

export APT_CONFIG=$apt/apt.conf
step "reading the package lists of Debian's $suite"
mirrors=
for some in "$machine" "$former"; do
    [ -n "$some" ] || continue
    mirrors+=" $some"
    [ "$some" = "$machine" ] && note= options= || note=" (archive of former releases)" options=" check-valid-until=no"
    for mirror in $some; do
        echo "deb [signed-by=$keyring$options] ${mirror/#file:/copy:} $suite main"
    done > "$apt/sources.list"
    apt-get -q update >> "$log" 2>&1 || true     # what matters is whether the packages can now be had
    server=$(served)
    [ -z "$server" ] || break
done
# Still the same step: a failure shows in what update said.
say "fetching Caffe and its libraries${server:+ from $server$note}"
percent() {     # of apt's status lines, on a terminal
    local kind rest shown
    [ -t 2 ] || exec cat > /dev/null
    while IFS=: read -r kind _ shown rest; do
        [ "$kind" != dlstatus ] || printf '\rget_caffe: %3.0f %%' "$shown" >&2
    done
    printf '\r' >&2
}
if [ -t 2 ]; then status=3; else status=-1; fi
fetch() { apt-get -q -y --download-only -o "APT::Status-Fd=$status" install "$@" 3>&1 >> "$log" 2>&1 | percent; }
fetch $python
apt-get -q autoclean >> "$log" 2>&1             # versions that the archive has replaced

# ---------------------------------------------------------------------------------------------------------- the root
root=$build/root
usr=$root/usr
unpack() {      # every package that has come since; not those in partial/, which a killed run leaves behind
    mkdir -p "$build/debs" "$root"
    find "$debs" -maxdepth 1 -name '*.deb' -printf '%f\n' | while read -r deb; do [ -e "$build/debs/$deb" ] || echo "$deb"; done |
        xargs -P "$(nproc)" -I{} sh -c 'dpkg-deb -x "$1/$4" "$2" && touch "$3/$4"' unpack "$debs" "$root" "$build/debs" {} \
        2>> "$log"
}
if [ ! -e "$build/unpacked" ]; then
    # Here go builds that a former run left behind. The current one stays: somebody's training may be running from it.
    for old in .caffe/builds/*; do
        [ "$old" -ef .caffe/current ] || [ "$old" -ef "$build" ] || rm -rf "$old"
    done
    unpack
    rm -rf "$usr/bin/private" "$usr/lib/host" "$build/bin"
    mkdir -p "$usr/bin/private" "$usr/lib/host"

    # The machine's C library comes first, as it must match the machine's loader; and its C++ library, as the
    # machine's compiler links against it. Everything else is Debian 11's.
    host=$(/lib64/ld-linux-x86-64.so.2 --list /bin/sh | sed -n 's|.*=> \(.*\)/libc\.so\.6 .*|\1|p')
    for lib in libc libm libmvec libpthread libdl librt libutil libresolv libanl libstdc++ libgcc_s libgomp; do
        find "$host" -maxdepth 1 -name "$lib.so.?" -exec ln -sf -t "$usr/lib/host" {} +
    done
    ln -sfn ../x86_64-linux-gnu "$usr/include/python3.9/x86_64-linux-gnu"  # where pyconfig.h looks for its other half
    rm -f "$usr/lib/python3.9/sitecustomize.py"
    cat > "$usr/lib/python3.9/sitecustomize.py" <<'EOF'
"""What this private Python does at its start, in python and inside caffe alike."""
import os
import sys

# The user's own PYTHONPATH is searched last: packages there may be another Python's, and must not hide ours.
repo = sys.prefix.rpartition("/.caffe/")[0]
ours = {repo + "/layers", repo + "/.caffe/packages"}
theirs = {os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(":")} - ours
sys.path.sort(key=theirs.__contains__)      # a stable sort: nothing else moves

# caffe itself links protobuf, libjpeg, libtiff and others, all older than those that pip's packages bring along. A
# package must find its own first; without this, importing protobuf inside caffe crashes.
if sys.prefix + "/bin/caffe" in open("/proc/self/cmdline").read().split("\0"):
    sys.setdlopenflags(sys.getdlopenflags() | os.RTLD_DEEPBIND)
EOF
    # python and caffe run under the machine's own loader with our libraries; no variable tells the programs they start
    # about these. --argv0 makes sys.executable this very script, so pip and multiprocessing come back through it. caffe
    # finds its Python through PATH, where a virtual environment would otherwise mislead it; both find the standard
    # library because they lie below usr/.
    for name in python caffe; do
        cat > "$usr/bin/private/$name" <<'EOF'
#!/bin/sh
bin=$(readlink -f "$0" 2> /dev/null)    # it would complain when this shell is killed
bin=${bin%/*}
usr=${bin%/bin/private}
repo=${bin%/.caffe/*}
arch=x86_64-linux-gnu
unset PYTHONHOME
case ":${PYTHONPATH:-}:" in
    *":$repo/layers:"*) ;;
    *) export PYTHONPATH="$repo/layers:$repo/.caffe/packages${PYTHONPATH:+:$PYTHONPATH}" ;;
esac
export PYTHONNOUSERSITE=1 MPLCONFIGDIR="${MPLCONFIGDIR:-$repo/.caffe/matplotlib}"
if [ -z "${OPENBLAS_CORETYPE:-}" ]; then    # this OpenBLAS takes any processor younger than itself for a Pentium 4
    if grep -qm1 avx512bw /proc/cpuinfo; then export OPENBLAS_CORETYPE=SKYLAKEX
    elif grep -qm1 avx2 /proc/cpuinfo; then export OPENBLAS_CORETYPE=HASWELL; fi
fi
libraries="$usr/lib/host:$usr/lib/$arch/openblas-pthread:$usr/lib/$arch:${usr%/usr}/lib/$arch:$usr/lib"
EOF
    done
    cat >> "$usr/bin/private/python" <<'EOF'
exec /lib64/ld-linux-x86-64.so.2 --argv0 "$bin/python3" --library-path "$libraries" "$usr/bin/python3.9" "$@"
EOF
    cat >> "$usr/bin/private/caffe" <<'EOF'
PATH="$bin:$PATH" exec /lib64/ld-linux-x86-64.so.2 --argv0 "$0" --library-path "$libraries" "$usr/bin/caffe" "$@"
EOF
    chmod +x "$usr"/bin/private/*
    write_command "$usr/bin/private"
    ln -s python "$usr/bin/private/python3"
    ln -s root/usr/bin/private "$build/bin"
    write_activate
fi

# ---------------------------------------------------------------------------------------------------------- Python's
rm -rf "$usr/local"                             # a killed pip may have left half a package
export PIP_CACHE_DIR=$caffe/tmp/pip PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_NO_WARN_SCRIPT_LOCATION=1
unset PIP_TARGET PIP_PREFIX PIP_ROOT
certificates=/etc/ssl/certs/ca-certificates.crt # this old pip would not look there by itself
[ ! -r $certificates ] || export REQUESTS_CA_BUNDLE=${REQUESTS_CA_BUNDLE:-${PIP_CERT:-$certificates}}
# While Caffe is fetched. With a target, as the default of Debian's pip is the home directory for anybody but root.
(
    trap - ERR
    pip=$(echo "$usr"/share/python-wheels/pip-*.whl)/pip
    install="install --no-deps --no-compile --target"
    if pinned=$(grep '^pip==' requirements.txt); then       # it takes half of the time of Debian's
        "$build/bin/python" "$pip" $install "$caffe/tmp/pinned" "$pinned"
        pip=$caffe/tmp/pinned/pip
    fi
    exec "$build/bin/python" "$pip" $install "$usr/local/lib/python3.9/dist-packages" -r requirements.txt
) > "$log.pip" 2>&1 &
adding=$!
trap 'kill "$adding" 2> /dev/null' EXIT

fetch $packages
if [ ! -e "$build/unpacked" ]; then
    step "unpacking $(ls "$debs" | grep -c '\.deb$') packages"
    unpack
    touch "$build/unpacked"
fi
step "adding the Python packages of requirements.txt"
wait "$adding" || { cat "$log.pip" >> "$log"; false; }
trap - EXIT
"$build/bin/python" -c "import caffe" 2>> "$log"

rm -rf "$caffe/tmp"/*
touch "$build/complete"
use "$key"
say "ready: source .caffe/activate"
