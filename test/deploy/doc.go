// Package deploy holds the files in deploy to what their users do with them: helm, kubectl, promtool, buildah
// and systemd.
package deploy
