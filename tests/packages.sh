#!/bin/sh
# Install the Debian packages whose programs the tests run; nothing is done where all are there.
set -eu
PATH="$PATH:/usr/sbin:/sbin"
missing=""
for pair in slurmctld:slurm-wlm slurmd:slurm-wlm sbatch:slurm-wlm munged:munge faketime:faketime gcc:gcc chromium:chromium; do
    package="${pair#*:}"
    command -v "${pair%%:*}" >/dev/null || case "$missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac
done
if [ -z "$missing" ]; then
    exit 0
fi
root=""
if [ "$(id -u)" != 0 ]; then
    root="sudo -n"
fi
if ! command -v apt-get >/dev/null || ! $root true 2>/dev/null; then
    echo "tests need these Debian packages, which only root may install:$missing" >&2
    echo "as root: apt-get install$missing" >&2
    exit 1
fi
$root apt-get update -qq
# shellcheck disable=SC2086
$root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing
