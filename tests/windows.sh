#!/bin/bash
# Compile the C files for Windows with mingw-w64 and CPython's own Windows headers. Nothing is linked or run.
#
#     sudo apt-get install gcc-mingw-w64-x86-64
#     make && tests/windows.sh [FOLDER]       the folder keeps the headers, from the source of Debian's python3.11
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mkdir -p "${1:-output/windows}" && cd "${1:-output/windows}" && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

if [ ! -e "$place/complete" ]; then
    mirror=$(apt-get update --print-uris | sed -n "s|^'\(.*/debian\)/dists/bookworm/InRelease'.*|\1|p" | head -n 1)
    mkdir -p "$place/lists/partial"
    echo "deb-src [signed-by=$keyring] $mirror bookworm main" > "$place/sources.list"
    from=(-o Dir::Etc::sourcelist="$place/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$place/lists"
          -o APT::Sandbox::User=)
    apt-get -q "${from[@]}" update
    (cd "$place" && apt-get -q "${from[@]}" source --download-only --tar-only python3.11)
    tar -xzf "$place"/python3.11_*.orig.tar.gz -C "$place" --strip-components=1 --wildcards '*/Include' '*/PC/pyconfig.h'
    touch "$place/complete"
fi

for file in cython/ccnn/*.c cython/ccnn/*/*.c; do
    x86_64-w64-mingw32-gcc -c -O1 -march=x86-64-v3 -ffast-math -DMS_WIN64 -DCCNN_NEEDS='""' -I"$place/Include" -I"$place/PC" \
        -Icython/ccnn -I"${file%/*}" -o "$place/object.o" "$file"
    echo "$file: compiled for Windows"
done
