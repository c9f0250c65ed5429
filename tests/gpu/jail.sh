#!/bin/sh
# jail.sh ROOT FOLDER PYTHON COMMAND...: runs a command in an empty root that has the system's own /usr and /etc, nothing under /usr/local but
# PYTHON's folder, no home, and FOLDER at its own path. ROOT is an empty folder to mount it on. For `unshare --mount --map-root-user`: nothing is left behind.
set -e
root=$1 folder=$2 python=$3
shift 3
mount -t tmpfs none "$root"
for top in usr bin sbin lib lib64 etc; do
    if [ -L "/$top" ]; then
        ln -s "$(readlink "/$top")" "$root/$top"
    elif [ -d "/$top" ]; then
        mkdir "$root/$top"
        mount --rbind "/$top" "$root/$top"
    fi
done
for hidden in /usr/local /opt; do
    if [ -d "$root$hidden" ]; then mount -t tmpfs none "$root$hidden"; fi
done
mkdir "$root/proc" "$root/dev" "$root/tmp"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
case $python in
    /usr/local* | /opt* | /root* | /home*) mkdir -p "$root$python" && mount --bind "$python" "$root$python" ;;
esac
mkdir -p "$root$folder"
mount --bind "$folder" "$root$folder"
PATH=$PATH:/usr/sbin:/sbin
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
