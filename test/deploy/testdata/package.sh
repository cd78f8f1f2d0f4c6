# package.sh FOLDER FORMAT FIRST SECOND PORT BINARY: installs the package FIRST, whose program runs BINARY, into a copy of this system,
# runs it at PORT of 127.0.0.1, upgrades to SECOND, removes and purges it. The copy is an overlay in its own mount namespace, and disappears with
# this process. systemd is simulated: a log has the calls of the packages, and sqube never starts.
set -euo pipefail
folder=$1 format=$2 first=$3 second=$4 port=$5 binary=$6
root=$folder/root
mkdir -p "$folder"/{upper,work} "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir -p "$root/run/systemd/system" "$root/packages"
cp "$first" "$second" "$root/packages/"
cp -L "$binary" "$root/packages/sqube"
first=/packages/$(basename "$first") second=/packages/$(basename "$second")
rm -f "$root/usr/bin/systemctl" "$root/var/lib/man-db/auto-update" # dpkg would index all manual pages of this system, each time
cat >"$root/usr/bin/systemctl" <<'END'
#!/bin/sh
echo "$*" >>/packages/asked
[ "$1" != try-restart ] # fails
END
chmod +x "$root/usr/bin/systemctl"

within=(chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive)
within() { "${within[@]}" "$@"; }
as_sqube=("${within[@]}" setpriv --reuid=sqube --regid=sqube --clear-groups env)
as_sqube() { "${as_sqube[@]}" "$@"; }
fail() { echo "FAIL: $*"; exit 1; }
# asked COMMANDS: since the last check the package has run systemctl with these, one after another.
asked() {
	local found
	found=$(paste -sd ';' "$root/packages/asked" 2>/dev/null || true)
	[ "$found" = "$1" ] || fail "systemctl was asked for '$found', not '$1'"
	rm -f "$root/packages/asked"
}

case $format in
deb)
	install() { within dpkg --install --force-confold "$1"; }
	upgrade() { install "$1"; }
	on_upgrade="daemon-reload;daemon-reload;try-restart sqube.service" # by what postrm of the old one and postinst do
	config=config.yaml
	remove() { within dpkg --remove sqube; }
	;;
rpm)
	within rpm --initdb
	install() { within rpm --install --nodeps "$1"; }
	upgrade() { within rpm --upgrade --nodeps "$1"; }
	on_upgrade="daemon-reload;try-restart sqube.service;daemon-reload"
	config=config.yaml.rpmsave
	remove() { within rpm --erase sqube; }
	;;
esac

echo "== installed, nothing runs"
install "$first"
asked "daemon-reload;try-restart sqube.service"
[ "$(within stat -c '%U %G %a' /etc/sqube/config.yaml)" = "root sqube 640" ] || fail "the configuration file is $(within stat -c '%U %G %a' /etc/sqube/config.yaml)"
[[ $(within getent passwd sqube) == *:/var/lib/sqube:/usr/sbin/nologin ]] || fail "the user is $(within getent passwd sqube)"
[ ! -e "$root/var/lib/sqube" ] || fail "there is a state before the first start"
within systemd-analyze verify --man=no /usr/lib/systemd/system/sqube.service
within bash -c 'source /usr/share/bash-completion/completions/sqube; complete -p sqube' >/dev/null || fail "bash completes nothing"
[[ $(within sqube __complete serve --retention-r 2>/dev/null) == --retention-rows* ]] || fail "flags are not completed"
within kubectl-sqube help undo | grep -q "^  kubectl sqube undo " || fail "kubectl-sqube is not kubectl's plugin"
# documented COMMAND…: the command and its subcommands have manual pages, which are rendered without a warning.
documented() {
	local page sub
	page=$(IFS=-; echo "$*")
	within env LC_ALL=C.UTF-8 man --warnings --local-file "/usr/share/man/man1/$page.1.gz" >"$folder/page" 2>"$folder/warnings" || fail "man $page: $(cat "$folder/warnings")"
	[ ! -s "$folder/warnings" ] || fail "man $page: $(cat "$folder/warnings")"
	grep -q "^ *$* " "$folder/page" || fail "man $page shows $(cat "$folder/page")"
	for sub in $(within "${@:1:1}" __completeNoDesc "${@:2}" '' 2>/dev/null | grep '^[a-z]'); do
		[ "$sub" = help ] || documented "$@" "$sub"
	done
}
[ "$format" = rpm ] || documented sqube # the pages are the same
[ "$(ls "$root/usr/share/man/man1" | grep -c '^sqube')" -gt 15 ] || fail "few commands have a manual page"
diff -r ../../deploy/board "$root/usr/share/sqube/board" || fail "the files for a board differ"

echo "== runs from the package, as its unit runs it"
within install -d -o sqube -g sqube -m 700 /var/lib/sqube # as StateDirectory= does
start=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/sqube.service")
serve() {
	: >"$folder/log" # here, or the loop may read that of an earlier start
	# shellcheck disable=SC2086 # the words of the unit
	"${as_sqube[@]}" SQUBE_BIND_ADDRESS=127.0.0.1 SQUBE_SECURE_PORT="$port" $start >>"$folder/log" 2>&1 &
	server=$!
	until grep -q 'msg=ready' "$folder/log"; do
		kill -0 $server 2>/dev/null || { cat "$folder/log"; fail "sqube ended"; }
		sleep 0.1
	done
}
end() {
	kill -TERM $server
	wait $server || { cat "$folder/log"; fail "sqube ended with an error"; }
}
serve
token=$(as_sqube sqube token create --server "https://127.0.0.1:$port") # it finds the data by itself
as_sqube sqube backup /var/lib/sqube/backup.db
as_sqube sqube kubeconfig --user jane >/dev/null
as_sqube sqube check >/dev/null
said=$(within setpriv --reuid=nobody --clear-groups sqube check 2>&1) && fail "anyone may read the state"
[[ $said == "sqube: this user can't read /etc/sqube/config.yaml, which says where the server's files are: use sudo, or "* ]] || fail "nobody is told '$said'"
said=$(within env SQUBE_DATA_DIR=/elsewhere sqube check 2>&1) && fail "the environment is ignored"
[[ $said == *" /elsewhere/sqube.db: no such file"* ]] || fail "the environment is ignored: $said"
within mkdir -p /work/data/pki
said=$(within sh -c 'cd /work && sqube check' 2>&1) && fail "./data is ignored"
[[ $said == *" /work/data/sqube.db: no such file"* ]] || fail "./data is ignored: $said"
end

echo "== upgraded, with the configuration that was changed and the state"
echo "event-ttl: 30m" >>"$root/etc/sqube/config.yaml"
upgrade "$second"
asked "$on_upgrade"
grep -q '^event-ttl: 30m$' "$root/etc/sqube/config.yaml" || fail "the configuration is lost"
[ "$(within stat -c '%U %G %a' /etc/sqube/config.yaml)" = "root sqube 640" ] || fail "the configuration file is $(within stat -c '%U %G %a' /etc/sqube/config.yaml)"
serve
as_sqube sqube show -n kube-system secrets "bootstrap-token-${token%.*}" >/dev/null
end

echo "== removed, with what is the user's kept"
remove
asked "--quiet disable --now sqube.service;daemon-reload"
[ ! -e "$root/usr/bin/sqube" ] || fail "the program is still there"
[ ! -e "$root/usr/lib/systemd/system/sqube.service" ] || fail "the unit is still there"
[ -e "$root/var/lib/sqube/sqube.db" ] || fail "the state is gone"
grep -q '^event-ttl: 30m$' "$root/etc/sqube/$config" || fail "the configuration is gone"

if [ "$format" = deb ]; then
	echo "== purged"
	within dpkg --purge sqube
	for path in /var/lib/sqube /etc/sqube; do
		[ ! -e "$root$path" ] || fail "$path is left: $(ls -la "$root$path")"
	done

	echo "== purged, with the state on a file system of its own"
	install "$second"
	mkdir "$root/var/lib/sqube"
	mount -t tmpfs tmpfs "$root/var/lib/sqube"
	touch "$root/var/lib/sqube/sqube.db"
	within dpkg --purge sqube
	[ -z "$(ls -A "$root/var/lib/sqube")" ] || fail "/var/lib/sqube has $(ls -A "$root/var/lib/sqube")"
fi
echo "== done"
