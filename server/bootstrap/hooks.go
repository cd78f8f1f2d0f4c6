package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/apimachinery/lease"
	systemclasses "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/controller/apiserverleasegc"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
	"k8s.io/kubernetes/pkg/controlplane/controller/legacytokentracking"
	"k8s.io/kubernetes/pkg/controlplane/controller/systemnamespaces"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	"k8s.io/utils/clock"
)

const namespacesHookName = "start-system-namespaces-controller"

var systemNamespaces = []string{
	metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
}

// namespacesHook creates the system namespaces, then upstream's controller recreates those that are deleted. Unlike upstream,
// readiness waits for them, since other hooks write into them.
func namespacesHook(client kubernetes.Interface, informer coreinformers.NamespaceInformer) *hook {
	controller := systemnamespaces.NewController(systemNamespaces, client, informer)
	return &hook{
		name: namespacesHookName,
		ensure: func(ctx context.Context) error {
			return each(ctx, systemNamespaces, func(ctx context.Context, name string) error {
				return ensureNamespace(ctx, client, name)
			})
		},
		serve: func(ctx context.Context, ready func()) error {
			ready()
			controller.Run(ctx.Done())
			return nil
		},
	}
}

func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		err = created(err)
	}
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// priorityClassesHook creates the two priority classes of nodes and system components.
func priorityClassesHook(client kubernetes.Interface) *hook {
	classes := client.SchedulingV1().PriorityClasses()
	return &hook{
		name: schedulingrest.PostStartHookName,
		ensure: func(ctx context.Context) error {
			list, err := classes.List(ctx, metav1.ListOptions{})
			if notServed(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("list priority classes: %w", err)
			}
			present := byName(list.Items)
			return each(ctx, systemclasses.SystemPriorityClasses(), func(ctx context.Context, class *schedulingv1.PriorityClass) error {
				if present[class.Name] != nil {
					return nil
				}
				if _, err := classes.Create(ctx, class, metav1.CreateOptions{}); created(err) != nil {
					return fmt.Errorf("create priority class %s: %w", class.Name, err)
				}
				return nil
			})
		},
	}
}

const serviceCIDRHookName = "start-kubernetes-service-cidr-controller"

// serviceCIDRHook creates the default ServiceCIDR, from which cluster IPs are allocated, sets its condition Ready, and maintains
// it.
func serviceCIDRHook(client kubernetes.Interface, services Services) *hook {
	controller := defaultservicecidr.NewController(services.IPRange, services.SecondaryIPRange, client)
	return &hook{
		name: serviceCIDRHookName,
		serve: func(ctx context.Context, ready func()) error {
			controller.Start(ctx) // returns when the object exists, and continues in the background until ctx ends
			ready()
			<-ctx.Done()
			return nil
		},
	}
}

// serviceRepairHook makes the allocated cluster IPs and node ports agree with the Services: after a crash between an allocation
// and the write of the Service, and after a restore. It is ready after the first pass.
func serviceRepairHook(repair ServiceRepair) *hook {
	return &hook{
		name: "start-service-ip-repair-controllers",
		serve: func(ctx context.Context, ready func()) error {
			repair.Run(ctx, ready)
			if ctx.Err() == nil {
				return errors.New("the repair of Service addresses and ports has stopped: see the log")
			}
			return nil
		},
	}
}

// authenticationHook publishes what extension API servers need to trust this server and its clients, and publishes it again when
// a CA file changes.
func authenticationHook(client kubernetes.Interface, info clusterauthenticationtrust.ClusterAuthenticationInfo) *hook {
	controller := clusterauthenticationtrust.NewClusterAuthenticationTrustController(info, client)
	return &hook{
		name:  "start-cluster-authentication-info-controller",
		after: []string{namespacesHookName},
		serve: func(ctx context.Context, ready func()) error {
			var running sync.WaitGroup
			defer running.Wait()
			for _, ca := range []dynamiccertificates.CAContentProvider{info.ClientCA, info.RequestHeaderCA} {
				if ca == nil {
					continue
				}
				ca.AddListener(controller)
				watcher, ok := ca.(dynamiccertificates.ControllerRunner)
				if !ok {
					continue // content that never changes
				}
				if err := watcher.RunOnce(ctx); err != nil {
					return fmt.Errorf("read certificate authority %s: %w", ca.Name(), err)
				}
				running.Go(func() { watcher.Run(ctx, 1) })
			}
			ready()
			controller.Run(ctx, 1)
			return nil
		},
	}
}

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
func identityHook(client kubernetes.Interface, serverID string) *hook {
	controller := lease.NewController(clock.RealClock{}, client, serverID+"_"+string(uuid.NewUUID()),
		int32(identityDuration/time.Second), nil, identityRenewal, serverID, metav1.NamespaceSystem, labelIdentity)
	return &hook{
		name:      "start-kube-apiserver-identity-lease-controller",
		after:     []string{namespacesHookName},
		announces: true,
		serve: func(ctx context.Context, ready func()) error {
			ready()
			controller.Run(ctx)
			controller.Stop()
			return nil
		},
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

// identityCollectorHook deletes Leases of servers that ended without deleting them.
func identityCollectorHook(client kubernetes.Interface) *hook {
	collector := apiserverleasegc.NewAPIServerLeaseGC(client, identityDuration, metav1.NamespaceSystem,
		controlplane.IdentityLeaseComponentLabelKey+"="+controlplane.KubeAPIServer)
	return &hook{
		name: "start-kube-apiserver-identity-lease-garbage-collector",
		serve: func(ctx context.Context, ready func()) error {
			ready()
			collector.RunWithContext(ctx)
			return nil
		},
	}
}

// legacyTokenHook records when the tracking of legacy service account tokens began (KEP-2799), which the cleaner of unused
// tokens needs.
func legacyTokenHook(client kubernetes.Interface) *hook {
	controller := legacytokentracking.NewController(client)
	return &hook{
		name:  "start-legacy-token-tracking-controller",
		after: []string{namespacesHookName},
		serve: func(ctx context.Context, ready func()) error {
			ready()
			controller.RunWithContext(ctx)
			return nil
		},
	}
}
