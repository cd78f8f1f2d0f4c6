#!/bin/sh
# dpkg passes purge when nothing should remain. The user stays, since it may own files elsewhere; rpm leaves the state too.
set -e
if [ "$1" = purge ]; then
	rm -rf /var/lib/sqube /etc/sqube || mountpoint -q /var/lib/sqube # a mounted file system can only be emptied
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
