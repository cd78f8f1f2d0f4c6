// Package pki makes and keeps the keys and certificates of a server: its certificate authorities, its serving and
// client certificates, the key that signs service account tokens, and the administrator's kubeconfig.
//
// File names follow kubeadm's (https://kubernetes.io/docs/setup/best-practices/certificates/), so that tools which know
// that layout find what they look for. All keys are ECDSA P-256, which takes a millisecond where RSA takes a second.
//
// The order of writing makes a power failure harmless at any point. A key is on disk before the certificate for it is,
// and renewal keeps the key, so the only states a failure can leave are "nothing", "a key alone" and "a matching pair",
// and the next start goes on from each. A pair that does not match was therefore made by a person, and is reported
// rather than replaced.
//
// All servers of a cluster share the authorities and the service account key. With a SharedStore their files are copies:
// keys are made in memory, written to the store, and written to files only when the store has accepted them, so that no file
// holds keys that another server's replaced. A file with a key other than the store's is reported, not replaced.
package pki
