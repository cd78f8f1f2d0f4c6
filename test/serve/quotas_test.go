package serve

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestQuotasAgree has many clients create objects at once in a namespace with two quotas, and some create what exists already. There are
// never more objects than the quotas allow, and soon both quotas have counted what is there, so all that they allow can be created.
func TestQuotasAgree(t *testing.T) {
	t.Parallel()
	const secrets, limit = corev1.ResourceName("count/secrets"), 40
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		servers := []typedcorev1.CoreV1Interface{}
		key := sqube.KeyFile(t)
		start := func() {
			config := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: []string{"--pki-encryption-key-file", key}}).Config(t)
			config.QPS = -1
			servers = append(servers, kubernetes.NewForConfigOrDie(config).CoreV1())
		}
		start()
		if engine.Name == "postgres" { // a second one, whose admission changes the same quotas
			start()
		}
		core := servers[0]
		used := func(want int64) {
			t.Helper()
			harness.Retry(t, fmt.Sprintf("both quotas have counted %d", want), func() error {
				list, err := core.ResourceQuotas("default").List(t.Context(), metav1.ListOptions{})
				harness.Must(t, err)
				for _, quota := range list.Items {
					if amount, ok := quota.Status.Used[secrets]; !ok || amount.Value() != want {
						return fmt.Errorf("%s has counted %s", quota.Name, amount.String())
					}
				}
				return nil
			})
		}
		for _, name := range []string{"one", "two"} {
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{secrets: *resource.NewQuantity(limit, resource.DecimalSI)}}}
			_, err := core.ResourceQuotas("default").Create(t.Context(), quota, metav1.CreateOptions{})
			harness.Must(t, err)
		}
		used(0)
		// create has clients create as many secrets each, of which every so many have the names of others. It returns how many succeeded.
		create := func(clients, each, same int) (made int64) {
			var running sync.WaitGroup
			var mu sync.Mutex
			for n := range clients {
				running.Go(func() {
					for i := range each {
						secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}}
						if n%same == 1 {
							secret.GenerateName, secret.Name = "", fmt.Sprint("same-", i)
						}
						_, err := servers[n%len(servers)].Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
						switch {
						case err == nil:
							mu.Lock()
							made++
							mu.Unlock()
						case !apierrors.IsForbidden(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
							t.Errorf("create a secret: %v", err)
						}
					}
				})
			}
			running.Wait()
			return made
		}
		made := create(16, 2, 4)
		used(made)
		made += create(16, 5, 4)
		used(made)
		for made < limit {
			more := create(1, 1, 4)
			if more == 0 {
				t.Fatalf("%d are there, and no more can be created", made)
			}
			made += more
		}
		used(limit)
		if more := create(16, 4, 4); more > 0 {
			t.Errorf("%d more than the quotas allow were created", more)
		}
		list, err := core.Secrets("default").List(t.Context(), metav1.ListOptions{})
		harness.Must(t, err)
		if len(list.Items) != limit {
			t.Errorf("there are %d objects, and the quotas allow %d", len(list.Items), limit)
		}
		used(limit)
	})
}
