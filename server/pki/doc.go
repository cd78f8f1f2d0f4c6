// Package pki creates and renews the keys and certificates of a server: its certificate authorities, its serving and client
// certificates, the key that signs service account tokens, and the administrator's kubeconfig.
//
// File names follow kubeadm's (https://kubernetes.io/docs/setup/best-practices/certificates/), so that tools for
// that layout work. All keys are ECDSA P-256: generating one takes a millisecond, an RSA key takes a second.
//
// The order of writing makes a power failure harmless at any point. A key is on disk before its certificate, and renewal keeps the
// key, so a failure can only leave nothing, a key alone, or a matching pair, and the next start continues from each. A pair that
// does not match was therefore made by a person, and is reported rather than replaced.
//
// All servers of a cluster share the authorities and the service account key. With a SharedStore their files are copies:
// keys are made in memory, written to the store, and written to files only when the store has accepted them, so that no file
// holds keys that another server's replaced. A file with a key other than the store's is reported, not replaced.
package pki
