// Package deploy tests the files in deploy with the tools of their users: helm, kubectl, promtool, buildah and systemd.
package deploy
