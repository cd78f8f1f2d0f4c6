package serve

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const (
	missing = "/missing/file"
	help    = "(see sqube serve --help)"
)

// wrongFlag is one or several flags, and the line that refuses them; "…" in it stands for anything.
type wrongFlag struct{ flags, want string }

// refusedAlone are flags that hide what else is wrong, or that others change.
var refusedAlone = []wrongFlag{
	{"--no-such-flag", "unknown flag: --no-such-flag " + help},
	{"--datastore-password-command=pass", "--datastore-password-command needs a --datastore postgres://… " + help},
	{"--datastore=postgres://u:p@h/db --datastore-password-command=pass", "--datastore must not have a password if --datastore-password-command prints it " + help},
	{"extra", `sqube serve takes only flags, not "extra" ` + help},
	{"--logging-format=xml", `--logging-format "xml" must be text or json ` + help},
	{"-v=much", `invalid argument "much" for "-v, --v" flag`},
	{"--vmodule=x", `--vmodule "x" must be pattern=level, with commas between several: syntax error`},
	{"--watch-cache=perhaps", `invalid argument "perhaps" for "--watch-cache" flag`},
	{"--coordinated-leadership-lease-duration=10s", "--coordinated-leadership-lease-duration must be greater than --coordinated-leadership-renew-deadline " + help},
	{"--coordinated-leadership-retry-period=9s", "--coordinated-leadership-renew-deadline must be greater than 1.2 times --coordinated-leadership-retry-period"},
	{"--feature-gates=CoordinatedLeaderElection=true", "--feature-gates=CoordinatedLeaderElection=true needs --runtime-config=coordination.k8s.io/v1beta1=true " + help},
	{"--min-compatibility-version=1.99", "--emulated-version, --min-compatibility-version: minCompatibilityVersion version 1.99 is not between"},
	{"--emulation-forward-compatible", "--emulation-forward-compatible and --runtime-config-emulation-forward-compatible need an --emulated-version older than this version " + help},
	{"--service-account-signing-endpoint=/run/signer --service-account-signing-key-file=/dev/null", "--service-account-signing-endpoint must not be given with --service-account-signing-key-file or --service-account-key-file " + help},
	{"--tls-min-version=VersionTLS9", `--tls-min-version: unknown tls version "VersionTLS9" ` + help},
	{"--tls-curve-preferences=5", "--tls-curve-preferences: "},
	{"--tls-sni-cert-key=" + missing, "--tls-sni-cert-key"},
	{"--cert-dir=testdata/half", "--cert-dir testdata/half must hold both apiserver.crt and apiserver.key, or neither: "},
	{"--cluster-cidr=10.244.0.0/16", "--cluster-cidr has no effect without node-ipam-controller: see --control-plane and --controllers " + help},
	{"--concurrent-gc-syncs=many", `invalid argument "many" for "--concurrent-gc-syncs"`},
	{"--scheduler-config=" + missing, "--scheduler-config has no effect without --control-plane or --scheduler " + help},
	{"--control-plane --controller-manager-config=" + missing, "--controller-manager-config: open " + missing},
	{"--control-plane --controller-manager-config=/dev/null", "--controller-manager-config: /dev/null: "},
	{"--control-plane --allocate-node-cidrs", `--cluster-cidr "" must be a CIDR such as 10.244.0.0/16, `},
	{"--control-plane --allocate-node-cidrs --cluster-cidr=10.1.0.0/16,10.2.0.0/16", `--cluster-cidr "10.1.0.0/16,10.2.0.0/16" must be a CIDR such as …there are two of one IP family`},
	{"--control-plane --cluster-signing-kubelet-client-cert-file=ca.crt", `"cluster-signing-kube-apiserver-client": cannot specify cert without key`},
	{"--secure-port=https", `invalid argument "https" for "--secure-port" flag`},
	{"--bind-address=256.0.0.1", `invalid argument "256.0.0.1" for "--bind-address" flag`},
	{"--bind-address=192.0.2.77", "--bind-address 192.0.2.77 is not an address of this machine"},
	{"--service-cluster-ip-range=10.0.0.0/30", "--service-cluster-ip-range 10.0.0.0/30 must hold at least 8 addresses " + help},
	{"--service-cluster-ip-range=fd00::/108 --advertise-address=192.0.2.77", "must begin with a range of the same IP family as the server's address 192.0.2.77; --advertise-address sets another address " + help},
	{"--advertise-address=127.0.0.1", "the server's address 127.0.0.1 can't be in the endpoints of the Service kubernetes, since it is …--endpoint-reconciler-type=none adds none " + help},
	{"--service-node-port-range=many", `invalid argument "many" for "--service-node-port-range" flag`},
	{"--from=backup.db", "--from needs --in-memory: to serve a backup for good, sqube restore it first " + help},
	{"--encryption-provider-config-automatic-reload", "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config " + help},
	{"--console-oidc-client-id=console", "--console-oidc-extra-scopes need an issuer: --oidc-issuer-url or --authentication-config"},
	{"--console-oidc-client-secret-file=" + missing, "need an issuer"},
	{"--disable-admission-plugins=Nothing", `--disable-admission-plugins plugin "Nothing" is unknown ` + help},
	{"--in-memory --at=5", "--at and --from-outbound need --from " + help},
	{"--in-memory --from=" + missing, "--from: stat " + missing},
	{"--in-memory --from=/dev/null --at=yesterday", `--at must be a duration like 2h, or a time like 2026-11-21T10:00:00Z, not "yesterday" ` + help},
}

// refusedTogether are flags of which each gets its line, whatever else is wrong.
var refusedTogether = []wrongFlag{
	{"--storage-backend=etcd2", "--storage-backend=etcd2 is not supported: --datastore selects the database " + help},
	{"--enable-garbage-collector=false", "--enable-garbage-collector=false is not supported: …--controllers can turn it off " + help},
	{"--enable-logs-handler", "--enable-logs-handler=true is not supported: the log goes to standard error"},
	{"--log-text-split-stream", "--log-text-split-stream=true is not supported: "},
	{"--peer-ca-file=ca.crt", "--peer-ca-file=ca.crt is not supported: servers do not forward requests"},
	{"--emulated-version=1.99", "--emulated-version, --min-compatibility-version: emulation version 1.99 is not between […] " + help},
	{"--emulated-version=wardle=1.2", "--emulated-version, --min-compatibility-version: component not registered: wardle " + help},
	{"--egress-selector-config-file=" + missing, "--egress-selector-config-file: …no such file or directory"},
	{"--tracing-config-file=" + missing, "--tracing-config-file: …no such file or directory " + help},
	{"--egress-selector-config-file=testdata/half/apiserver.crt", "--egress-selector-config-file: "},
	{"--tracing-config-file=testdata/half/apiserver.crt", "--tracing-config-file: "},
	{"--shutdown-watch-termination-grace-period=-1s", "--shutdown-watch-termination-grace-period must be 0 or more " + help},
	{"--kubelet-client-key=/dev/null", "--kubelet-client-certificate and --kubelet-client-key must be given together " + help},
	{"--kubelet-client-key=/dev/null --kubelet-client-certificate=" + missing, "--kubelet-client-certificate must name a readable file: open " + missing},
	{"--kubelet-preferred-address-types=Home", `--kubelet-preferred-address-types "Home" must be one of Hostname, InternalDNS, InternalIP, ExternalDNS, ExternalIP ` + help},
	{"--max-connection-bytes-per-sec=-1", "--max-connection-bytes-per-sec must be 0 or more " + help},
	{"--tls-cipher-suites=ROT13", "--tls-cipher-suites: Cipher suite ROT13 not supported or doesn't exist " + help},
	{"--tls-sni-cert-key=" + missing + ",/dev/null", "--tls-sni-cert-key " + missing + ",/dev/null must name a certificate and its key: open " + missing},
	{"--http2-max-streams-per-connection=-1", "--http2-max-streams-per-connection must be 0 or more " + help},
	{"--strict-transport-security-directives=maxage=1", `--strict-transport-security-directives "maxage=1" must be max-age=SECONDS, includeSubDomains or preload ` + help},
	{"--goaway-chance=0.5", "--goaway-chance 0.5 must be between 0 and 0.02 " + help},
	{"--goaway-chance=NaN", "--goaway-chance NaN must be between 0 and 0.02 " + help},
	{"--kubernetes-service-node-port=80", "--kubernetes-service-node-port 80 must be 0 or in --service-node-port-range 30000-32767 " + help},
	{"--delete-collection-workers=0", "--delete-collection-workers 0 must be 1 or more " + help},
	{"--controllers=*,deployments", `--controllers: "deployments" is not in the list of known controllers: namespace-controller, …`},
	{"--controllers=-garbagecollector,api --concurrent-gc-syncs=3", "--concurrent-gc-syncs has no effect without garbage-collector-controller: see --control-plane and --controllers " + help},
	{"--controllers=*,-persistentvolume-binder-controller --flex-volume-plugin-dir=/x --enable-dynamic-provisioning", "--enable-dynamic-provisioning has no effect without persistentvolume-binder-controller: see --control-plane and --controllers " + help},
	{"--controllers=-* --use-service-account-credentials=false", "--use-service-account-credentials has no effect without a controller that uses it: see --control-plane and --controllers " + help},
	{"--controllers=-* --controller-manager-config=" + missing, "--controller-manager-config has no effect without a controller that uses it: see --control-plane and --controllers " + help},
	{"--controller-manager-config=" + missing, "--controller-manager-config: open " + missing},
	{"--control-plane --scheduler-config=" + missing, "--scheduler-config: open " + missing},
	{"--secure-port=0", "--secure-port 0 must be between 1 and 65535 " + help},
	{"--secure-port=65536", "--secure-port 65536 must be between 1 and 65535 " + help},
	{"--tls-private-key-file=/dev/null --tls-cert-file=" + missing, "--tls-cert-file must name a readable file: open " + missing},
	{"--tls-private-key-file=/dev/null", "--tls-cert-file and --tls-private-key-file must be given together " + help},
	{"--tls-san=not_a_name", `--tls-san: "not_a_name" can't be in a certificate: it is neither an IP address nor a DNS name ` + help},
	{"--endpoint-reconciler-type=master-count", `--endpoint-reconciler-type "master-count" must be lease or none ` + help},
	{"--pki-encryption-key-file=" + missing, "--pki-encryption-key-file must name a readable file: open " + missing},
	{"--authorization-mode=Rbac", `--authorization-mode "Rbac" must be one of AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node ` + help},
	{"--authorization-mode=ABAC", "--authorization-mode ABAC's authorization policy file not passed " + help},
	{"--enable-admission-plugins=Nothing", `--enable-admission-plugins plugin "Nothing" is unknown ` + help},
	{"--runtime-config=batch/v7=true", "--runtime-config: …batch/v7"},
	{"--runtime-config=nothing/v1=true", "--runtime-config: unknown api groups nothing/v1 " + help},
	{"--runtime-config=api/all=perhaps", "--runtime-config: invalid value api/all=perhaps " + help},
	{"--feature-gates=NoSuchGate=true", "--feature-gates: unrecognized feature gate: NoSuchGate " + help},
	{"--feature-gates=AllAlpha=perhaps", "--feature-gates: invalid value of AllAlpha=perhaps"},
	{"--service-cluster-ip-range=everything", `--service-cluster-ip-range "everything" must be a CIDR such as `},
	{"--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16", "must not have two ranges of one IP family " + help},
	{"--event-ttl=-1s", "--event-ttl must be"},
	{"--request-timeout=0", "--request-timeout must be more than 0 " + help},
	{"--cors-allowed-origins=(", `--cors-allowed-origins "(" must be a regular expression`},
	{"--retention=500ms", "--retention 500ms must be at least 1s " + help},
	{"--datastore-timeout=999ms", "--datastore-timeout 999ms must be at least 1s " + help},
	{"--retention-rows=99", "--retention-rows 99 must be 0 or at least 100 " + help},
	{"--retention-rows=-1", "--retention-rows -1 must be 0 or at least 100 " + help},
	{"--compact-interval=-1s", "--compact-interval -1s must not be negative " + help},
	{"--datastore=sqube.db", "--datastore must be sqlite://PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE " + help},
	{"--datastore=sqlite://", "--datastore must be sqlite://PATH or postgres://"},
	{"--admission-control-config-file=" + missing, "--admission-control-config-file must name a readable file: open " + missing},
	{"--audit-policy-file=" + missing, `--audit-policy-file: failed to read file path "` + missing + `"`},
	{"--audit-webhook-config-file=" + missing, "--audit-webhook-config-file: stat " + missing},
	{"--audit-log-path=- --audit-log-format=xml", "--audit-log-*: invalid audit log format xml, allowed formats are"},
	{"--audit-log-path=- --audit-log-mode=loose", "--audit-log-*: invalid audit log mode loose, allowed modes are"},
	{"--audit-log-path=- --audit-log-maxsize=-1", "--audit-log-maxsize -1 can't be a negative number"},
	{"--audit-log-path=- --audit-log-version=audit.k8s.io/v2", "--audit-log-*: invalid group version"},
	{"--authentication-config=" + missing, "--authentication-config must name a readable file: open " + missing},
	{"--authentication-token-webhook-config-file=" + missing, "--authentication-token-webhook-config-file must name a readable file: open " + missing},
	{"--authorization-config=" + missing, "--authorization-config must name a readable file: open " + missing},
	{"--authorization-policy-file=" + missing, "--authorization-policy-file must name a readable file: open " + missing},
	{"--authorization-webhook-config-file=" + missing, "--authorization-webhook-config-file must name a readable file: open " + missing},
	{"--encryption-provider-config=" + missing, "--encryption-provider-config " + missing + ": …no such file or directory " + help},
	{"--client-ca-file=" + missing, "--client-ca-file must name a readable file: open " + missing},
	{"--kubelet-certificate-authority=" + missing, "--kubelet-certificate-authority must name a readable file with certificates in PEM: open " + missing},
	{"--kubelet-certificate-authority=/dev/null", "--kubelet-certificate-authority must name a readable file with certificates in PEM: "},
	{"--oidc-ca-file=" + missing, "--oidc-ca-file must name a readable file: open " + missing},
	{"--proxy-client-cert-file=" + missing, "--proxy-client-cert-file and --proxy-client-key-file must be given together " + help},
	{"--proxy-client-key-file=/dev/null --proxy-client-cert-file=" + missing, "--proxy-client-cert-file and --proxy-client-key-file must name a certificate and its key: open " + missing},
	{"--requestheader-client-ca-file=" + missing, "--requestheader-client-ca-file must name a readable file: open " + missing},
	{"--service-account-key-file=" + missing, "--service-account-key-file must name a readable file: open " + missing},
	{"--service-account-signing-key-file=" + missing, "--service-account-signing-key-file must name a readable file: open " + missing},
	{"--token-auth-file=/", "--token-auth-file must name a readable file: read /: is a directory"},
}

// TestWrongFlags checks that every wrong flag results in one line that names it, and leaves nothing behind.
func TestWrongFlags(t *testing.T) {
	var rounds [][]wrongFlag // in each, every flag once
	for _, c := range refusedTogether {
		i := slices.IndexFunc(rounds, func(round []wrongFlag) bool { return !slices.ContainsFunc(round, c.sharesAFlag) })
		if i < 0 {
			i, rounds = len(rounds), append(rounds, nil)
		}
		rounds[i] = append(rounds[i], c)
	}
	for _, c := range refusedAlone {
		rounds = append(rounds, []wrongFlag{c})
	}
	for _, round := range rounds {
		t.Run(round[0].flags, func(t *testing.T) {
			t.Parallel()
			dataDir := filepath.Join(t.TempDir(), "data")
			args := []string{"serve", "--data-dir", dataDir, "--bind-address", "127.0.0.1", "--secure-port", freePort(t)}
			for _, c := range round {
				args = append(args, strings.Fields(c.flags)...)
			}
			_, stderr, code := sqube.Run(t, args)
			lines := slices.Collect(strings.Lines(stderr))
			if code != 1 || len(lines) != len(round) {
				t.Errorf("%d wrong flags: ended with code %d and wrote\n%s", len(round), code, stderr)
			}
			for _, c := range round {
				first, second, _ := strings.Cut(c.want, "…")
				if !slices.ContainsFunc(lines, func(line string) bool { return oneLine(line, first) == nil && oneLine(line, second) == nil }) {
					t.Errorf("%s: no line of it in\n%s", c.flags, stderr)
				}
			}
			if _, err := os.Stat(dataDir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left a data directory behind: %v", err)
			}
		})
	}
}

func (c wrongFlag) sharesAFlag(with wrongFlag) bool {
	return slices.ContainsFunc(strings.Fields(c.flags), func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		return slices.ContainsFunc(strings.Fields(with.flags), func(other string) bool { return other == name || strings.HasPrefix(other, name+"=") })
	})
}

// TestWrongFiles passes readable files with the wrong content. Whatever is left behind does not prevent the next start.
func TestWrongFiles(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	harness.Must(t, os.WriteFile(garbage, []byte("garbage\n"), 0o600))
	for _, c := range []struct{ flags, want string }{
		{"--audit-policy-file=GARBAGE", "--audit-policy-file: failed"},
		{"--audit-log-path=GARBAGE/log", "--audit-log-path, --audit-webhook-config-file: ensureLogFile: mkdir " + garbage + ": not a directory"},
		{"--audit-webhook-config-file=GARBAGE", "--audit-webhook-config-file: "},
		{"--tls-cert-file=GARBAGE --tls-private-key-file=GARBAGE", garbage},
		{"--authentication-config=GARBAGE", `setting up authentication: failed to load authentication configuration from file "` + garbage},
		{"--debug-socket-path=GARBAGE", "--debug-socket-path " + garbage + " is a file, not a socket: choose another path"},
		{"--debug-socket-path=GARBAGE/socket", "--debug-socket-path: "},
		{"--authorization-config=GARBAGE", "failed to load AuthorizationConfiguration from file"},
		{"--authorization-policy-file=GARBAGE --authorization-mode=ABAC", garbage},
		{"--authorization-webhook-config-file=GARBAGE --authorization-mode=Webhook", garbage},
		{"--client-ca-file=GARBAGE", "--client-ca-file must name a readable file with certificates in PEM"},
		{"--requestheader-client-ca-file=GARBAGE", garbage},
		{"--service-account-key-file=GARBAGE", "--service-account-key-file must hold keys in PEM"},
		{"--service-account-signing-key-file=GARBAGE", "--service-account-signing-key-file must hold a private key in PEM"},
		{"--token-auth-file=GARBAGE", "token file '" + garbage + "' must have at least 3 columns (token, user name, user uid), found 1"},
		{"--admission-control-config-file=GARBAGE", "reading --admission-control-config-file"},
	} {
		t.Run(c.flags, func(t *testing.T) {
			t.Parallel()
			dataDir := filepath.Join(t.TempDir(), "data")
			serve := []string{"serve", "--data-dir", dataDir, "--bind-address", "127.0.0.1", "--secure-port", freePort(t)}
			refuses(t, c.want, append(serve, strings.Fields(strings.ReplaceAll(c.flags, "GARBAGE", garbage))...))
		})
	}
}
