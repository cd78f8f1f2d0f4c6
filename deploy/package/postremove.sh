#!/bin/sh
# dpkg says purge when nothing is to be left. The user stays, as files elsewhere may be its own; rpm leaves the state too.
set -e
if [ "$1" = purge ]; then
	rm -rf /var/lib/sqube /etc/sqube
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
