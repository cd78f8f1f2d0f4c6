#!/bin/sh
# dpkg passes remove or upgrade, rpm 0 for a removal and 1 for an upgrade.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --quiet disable --now sqube.service
	fi
	;;
esac
