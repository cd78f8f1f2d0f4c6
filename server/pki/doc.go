// Package pki creates and renews the keys and certificates of a server: its certificate authorities, its serving and client
// certificates, the key that signs service account tokens, and the administrator's kubeconfig.
//
// File names follow kubeadm's (https://kubernetes.io/docs/setup/best-practices/certificates/), so that tools for
// that layout work. All keys are ECDSA P-256: generating one takes a millisecond, an RSA key takes a second.
//
// The order of writing makes a power failure harmless at any point. A key is on disk before its certificate, and renewal keeps the
// key, so after a failure there is no file, only a key, or a matching pair, and the next start continues from there. A pair that
// does not match was therefore put there by a person, and is reported rather than replaced.
//
// All servers of a cluster share the authorities and the service account key. With a SharedStore their files are copies:
// keys are generated in memory, written to the store, and written to files only after the store has accepted them, so files never
// hold keys that lost against another server's. A file with a key other than the store's is reported, not replaced.
package pki
