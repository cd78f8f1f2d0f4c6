#!/bin/sh
# dpkg passes configure, rpm 1 for an installation and 2 for an upgrade.
set -e
case "$1" in
configure | [0-9]*) ;;
*) exit 0 ;;
esac

systemd-sysusers sqube.conf
config=/etc/sqube/config.yaml
if [ -e $config ] && [ "$(stat -c %G $config)" = root ]; then
	chgrp sqube $config # it may contain a password
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# Only if it runs. The package is configured even if it can't run now, such as without Postgres.
	systemctl try-restart sqube.service || echo "sqube did not start: see journalctl -u sqube" >&2
fi
