package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/utils/clock"
)

const (
	// identityDuration is how long this server counts as alive after its last renewal, like upstream.
	identityDuration = time.Hour
	// identityRenewal is sixty times upstream's interval: a lease of an hour does not need a write every ten seconds.
	identityRenewal = 10 * time.Minute
)

// ServerID returns the name of this server in its cluster: "apiserver-" and a hash of the host's name and of instance, which
// distinguishes servers on one host. It returns an error if the host has no name.
func ServerID(instance string) (string, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this server after its host: %w", err)
	}
	hash := sha256.Sum256([]byte(hostname + "\x00" + instance))
	return "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(hash[:16])), nil
}

// identityHook maintains the Lease that shows that this server exists (KEP-1965), and deletes it when the server stops.
func identityHook(client kubernetes.Interface, serverID string, renewal time.Duration, after ...*hook) *hook {
	controller := lease.NewController(clock.RealClock{}, client, serverID+"_"+string(uuid.NewUUID()),
		int32(identityDuration/identityRenewal*renewal/time.Second), nil, renewal, serverID, metav1.NamespaceSystem, labelIdentity)
	return &hook{
		name:      "start-kube-apiserver-identity-lease-controller",
		after:     after,
		announces: true,
		serve: readyAtOnce(func(ctx context.Context) {
			controller.Run(ctx)
			controller.Stop()
		}),
	}
}

// labelIdentity sets the labels of kube-apiserver's identity Leases.
func labelIdentity(l *coordinationv1.Lease) error {
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("label the lease of this server: %w", err)
	}
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[controlplane.IdentityLeaseComponentLabelKey] = controlplane.KubeAPIServer
	l.Labels[corev1.LabelHostname] = hostname
	return nil
}

// identityCollectorHook deletes Leases of servers that ended without deleting them. Upstream's collector watches them all the time, for what
// it does once an hour.
func identityCollectorHook(client kubernetes.Interface, interval time.Duration, after ...*hook) *hook {
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	return &hook{
		name:  "start-kube-apiserver-identity-lease-garbage-collector",
		after: after,
		serve: readyAtOnce(func(ctx context.Context) {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				if err := collectIdentities(ctx, leases); err != nil {
					utilruntime.HandleErrorWithContext(ctx, err, "The Leases of servers that have ended can't be deleted")
				}
			}, interval)
		}),
	}
}

// collectIdentities deletes the identity Leases that have expired or are invalid.
func collectIdentities(ctx context.Context, leases coordinationclient.LeaseInterface) error {
	list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: controlplane.IdentityLeaseComponentLabelKey + "=" + controlplane.KubeAPIServer})
	if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		lease := &list.Items[i]
		renewed, seconds := lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds
		if renewed == nil || seconds == nil || time.Since(renewed.Time) > time.Duration(*seconds)*time.Second {
			errs = append(errs, deleteUnchanged(ctx, leases, lease))
		}
	}
	return errors.Join(errs...)
}
