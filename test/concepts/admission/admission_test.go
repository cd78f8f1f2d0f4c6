// Package admission tests sqube against the documentation of admission: built-in plugins, webhooks and policies.
package admission

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Section "Admission control", except for Pods: what the default plugins do. Webhooks and policies have their own sections;
// approval and signing of certificates are tested with bootstrap tokens.
var admission = []kit.Promise{
	// Package deletion proves the same of terminating namespaces, and that some can't be deleted.
	{Statement: "nothing can be created in a missing namespace (NamespaceLifecycle)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.ClusterPath("v1", "namespaces", c.Namespace+"-missing", "configmaps"), kit.ConfigMap("a", nil)).
			NotFound(t, `namespaces "`+c.Namespace+`-missing" not found`)
	}},
	{Statement: "a quota limits how much of a resource there is, and reports its usage (ResourceQuota)", Proof: func(t *testing.T, c *kit.Cluster) {
		quota := c.Path("v1", "resourcequotas", "q")
		c.Post(t, c.Path("v1", "resourcequotas"), kit.Manifest(`{metadata: {name: q}, spec: {hard: {count/secrets: "2", requests.cpu: "1", pods: "5"}}}`)).Created(t)
		harness.Eventually(t, "the quota is counted", func() bool { return c.Get(t, quota).Text(t, "status", "used", "count/secrets") == "0" })
		secret := func(name string) map[string]any { return kit.Manifest("{metadata: {name: %s}}", name) }
		c.Post(t, c.Path("v1", "secrets"), secret("a")).Created(t)
		c.Post(t, c.Path("v1", "secrets"), secret("b")).Created(t)
		overQuota(t, c, c.Path("v1", "secrets"), secret("c"),
			`secrets "c" is forbidden: exceeded quota: q, requested: count/secrets=1, used: count/secrets=2, limited: count/secrets=2`)
		c.Delete(t, c.Path("v1", "secrets", "a")).OK(t)
		harness.Eventually(t, "deleted objects no longer count", func() bool { return c.Get(t, quota).Text(t, "status", "used", "count/secrets") == "1" })
		harness.Eventually(t, "another can be created", func() bool { // once admission has the new usage, too
			return c.Post(t, c.Path("v1", "secrets"), secret("c")).Want(t, http.StatusCreated, http.StatusForbidden).Code == http.StatusCreated
		})

		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "pods"), kit.Pod("p")).Forbidden(t, "failed quota: q: must specify requests.cpu")
		c.Post(t, c.Path("v1", "pods"), podAsking("p", `{requests: {cpu: "2"}}`)).Forbidden(t,
			"exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1")
		c.Post(t, c.Path("v1", "pods"), podAsking("p", "{requests: {cpu: 600m}}")).Created(t)
		overQuota(t, c, c.Path("v1", "pods"), podAsking("p2", "{requests: {cpu: 600m}}"), "used: requests.cpu=600m")
	}},
	{Statement: "a claim without a class gets the default one (DefaultStorageClass)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.ClusterPath("storage.k8s.io/v1", "storageclasses"), kit.Manifest(`{metadata: {name: %s, annotations: {storageclass.kubernetes.io/is-default-class: "true"}},
			provisioner: example.com/none}`, c.Namespace)).Created(t)
		harness.Eventually(t, "a claim gets the class", func() bool {
			return c.Post(t, c.Path("v1", "persistentvolumeclaims")+"?dryRun=All", claim("c", "")).Want(t,
				http.StatusCreated).Text(t, "spec", "storageClassName") == c.Namespace
		})
		none := c.Post(t, c.Path("v1", "persistentvolumeclaims"), claim("none", `storageClassName: "", `)).Created(t)
		kit.Equal(t, none.Value(t, "spec", "storageClassName"), "")
	}},
	{Statement: "a claim in use by a Pod is not removed until the Pod is gone (StorageObjectInUseProtection)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeServiceAccount(t, "robot")
		c.MakePodWithVolumes(t, "p", "node")
		path := c.Path("v1", "persistentvolumeclaims", "p")
		kit.Equal(t, c.Get(t, path).Value(t, "metadata", "finalizers"), []any{"kubernetes.io/pvc-protection"})
		c.Delete(t, path).OK(t)
		c.Delete(t, c.Path("v1", "pods", "p")+"?gracePeriodSeconds=0").OK(t)
		c.WaitGone(t, path)
		volume := c.Post(t, c.ClusterPath("v1", "persistentvolumes"), kit.Manifest(`{metadata: {name: %s}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce],
			storageClassName: none, csi: {driver: example.com, volumeHandle: h}}}`, c.Namespace)).Created(t)
		kit.Equal(t, volume.Value(t, "metadata", "finalizers"), []any{"kubernetes.io/pv-protection"})
	}},
	{Statement: "only bound claims of a class that allows expansion can be expanded (PersistentVolumeClaimResize)", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "persistentvolumeclaims", "c")
		for _, class := range []string{"fixed", "elastic"} {
			c.Post(t, c.ClusterPath("storage.k8s.io/v1", "storageclasses"),
				kit.Manifest(`{metadata: {name: %s-%s}, provisioner: example.com/none, allowVolumeExpansion: %t}`,
					class, c.Namespace, class == "elastic")).Created(t)
		}
		grow := func() kit.Answer {
			return c.Patch(t, kit.MergePatch, path, `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
		}
		for _, class := range []string{"fixed", "elastic"} {
			c.Post(t, c.Path("v1", "persistentvolumeclaims"), claim("c",
				"storageClassName: "+class+"-"+c.Namespace+", volumeName: v, ")).Created(t)
			grow().Invalid(t,
				"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")
			c.Patch(t, kit.MergePatch, path+"/status", `{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`).OK(t)
			if class == "fixed" {
				grow().Forbidden(t, "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
			} else {
				harness.Eventually(t, "the class is in effect", func() bool { return grow().Code == http.StatusOK })
			}
			c.Delete(t, path).OK(t)
			c.WaitGone(t, path)
		}
	}},
	{Statement: "an Ingress without a class gets the default one (DefaultIngressClass)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.ClusterPath("networking.k8s.io/v1", "ingressclasses"), kit.Manifest(`{metadata: {name: %s, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}},
			spec: {controller: example.com/none}}`, c.Namespace)).Created(t)
		harness.Eventually(t, "an Ingress gets the class", func() bool {
			return c.Post(t, c.Path("networking.k8s.io/v1", "ingresses")+"?dryRun=All",
				kit.Manifest(`{metadata: {name: i}, spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}}`)).
				Created(t).Text(t, "spec", "ingressClassName") == c.Namespace
		})
	}},
	{Statement: "certificates for system:masters can't be requested from the signer of clients (CertificateSubjectRestriction)", Proof: func(t *testing.T, c *kit.Cluster) {
		key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		asked := kit.Must(cert.MakeCSR(key, &pkix.Name{CommonName: "root", Organization: []string{"system:masters"}}, nil, nil))(t)
		request := base64.StdEncoding.EncodeToString(asked)
		c.Post(t, c.ClusterPath("certificates.k8s.io/v1", "certificatesigningrequests"), kit.Manifest(`{metadata: {name: %s},
			spec: {signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: %s}}`, c.Namespace, request)).
			Forbidden(t, "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed")
	}},
	{Statement: "a new Node is tainted as not ready (TaintNodesByCondition)", Proof: func(t *testing.T, c *kit.Cluster) {
		taints := c.Post(t, c.ClusterPath("v1", "nodes"), kit.Manifest("{metadata: {name: %s}}", c.Namespace)).Created(t).Value(t, "spec", "taints")
		kit.Equal(t, taints, []any{map[string]any{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}})
	}},
}

// claim returns a PersistentVolumeClaim of 1Gi. spec is added to its spec, in YAML.
func claim(name, spec string) map[string]any {
	return kit.Manifest("{metadata: {name: %s}, spec: {%saccessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", name, spec)
}

// podAsking returns a Pod whose container requests resources, in YAML.
func podAsking(name, resources string) map[string]any {
	return kit.Manifest("{metadata: {name: %s}, spec: {containers: [{name: c, image: i, resources: %s}]}}", name, resources)
}

// container returns the first container of a Pod.
func container(t testing.TB, pod kit.Answer) map[string]any {
	t.Helper()
	containers, _ := pod.Value(t, "spec", "containers").([]any)
	if len(containers) == 0 {
		t.Fatalf("not a Pod: %s", pod.Body)
	}
	return containers[0].(map[string]any)
}

// Section "Admission control", for Pods: what the default plugins do.
var admissionOfPods = []kit.Promise{
	{Statement: "a Pod without an account runs as the account default, with its token mounted (ServiceAccount)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		pods := c.Path("v1", "pods")
		created := c.Post(t, pods, podAsking("p", "{}")).Created(t)
		kit.Equal(t, created.Text(t, "spec", "serviceAccountName"), "default")
		mounts, _ := container(t, created)["volumeMounts"].([]any)
		if len(mounts) != 1 || mounts[0].(map[string]any)["mountPath"] != "/var/run/secrets/kubernetes.io/serviceaccount" {
			t.Errorf("it mounts %v", mounts)
		}
		for _, part := range []string{`"expirationSeconds":3607`, `"name":"kube-root-ca.crt"`, `"fieldPath":"metadata.namespace"`} {
			if !strings.Contains(string(created.Body), part) {
				t.Errorf("its volume lacks %s", part)
			}
		}
		without := c.Post(t, pods, kit.Pod("without")).Created(t) // automountServiceAccountToken: false
		if volumes := without.Value(t, "spec", "volumes"); volumes != nil {
			t.Errorf("it has the volumes %v", volumes)
		}
		c.Post(t, pods, kit.With(kit.Pod("p2"), "missing", "spec", "serviceAccountName")).
			Forbidden(t, `error looking up service account `+c.Namespace+`/missing: serviceaccount "missing" not found`)
		c.Post(t, c.Path("v1", "serviceaccounts"), kit.Manifest("{metadata: {name: puller}, imagePullSecrets: [{name: registry}]}")).Created(t)
		pulls := c.Post(t, pods, kit.With(kit.Pod("pulls"), "puller", "spec", "serviceAccountName")).Created(t)
		kit.Equal(t, pulls.Value(t, "spec", "imagePullSecrets"), []any{map[string]any{"name": "registry"}})
	}},
	{Statement: "a Pod tolerates a node that is not ready or unreachable for five minutes (DefaultTolerationSeconds)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		created := c.Post(t, c.Path("v1", "pods"), kit.Pod("p")).Created(t)
		tolerations := []any{}
		for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
			tolerations = append(tolerations, map[string]any{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": float64(300)})
		}
		kit.Equal(t, created.Value(t, "spec", "tolerations"), tolerations)
	}},
	{Statement: "a Pod has the priority of its class (Priority)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		classed := func(class string) kit.Answer {
			return c.Post(t, c.Path("v1", "pods")+"?dryRun=All", kit.With(kit.Pod("p"), class, "spec", "priorityClassName"))
		}
		c.Post(t, c.ClusterPath("scheduling.k8s.io/v1", "priorityclasses"),
			kit.Manifest("{metadata: {name: %s}, value: 1000, preemptionPolicy: Never}", c.Namespace)).Created(t)
		harness.Eventually(t, "the class is in effect", func() bool { return classed(c.Namespace).Code == http.StatusCreated })
		created := classed(c.Namespace)
		kit.Equal(t, created.Value(t, "spec", "priority"), float64(1000))
		kit.Equal(t, created.Value(t, "spec", "preemptionPolicy"), "Never")
		kit.Equal(t, classed("system-node-critical").Value(t, "spec", "priority"), float64(2000001000))
		classed("missing").Forbidden(t, "no PriorityClass with name missing was found")
		c.Post(t, c.Path("v1", "pods"), kit.With(kit.With(kit.Pod("p"), c.Namespace, "spec", "priorityClassName"), 5, "spec", "priority")).
			Forbidden(t, "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name")
	}},
	{Statement: "a Pod has the overhead and the node selector of its runtime class (RuntimeClass)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		classed := func(class string) kit.Answer {
			return c.Post(t, c.Path("v1", "pods")+"?dryRun=All", kit.With(kit.Pod("p"), class, "spec", "runtimeClassName"))
		}
		c.Post(t, c.ClusterPath("node.k8s.io/v1", "runtimeclasses"), kit.Manifest(`{metadata: {name: %s}, handler: h, overhead: {podFixed: {cpu: 100m}},
			scheduling: {nodeSelector: {sandbox: "yes"}}}`, c.Namespace)).Created(t)
		harness.Eventually(t, "the class is in effect", func() bool { return classed(c.Namespace).Code == http.StatusCreated })
		created := classed(c.Namespace)
		kit.Equal(t, created.Value(t, "spec", "overhead"), map[string]any{"cpu": "100m"})
		kit.Equal(t, created.Value(t, "spec", "nodeSelector"), map[string]any{"sandbox": "yes"})
		classed("missing").Forbidden(t, `pod rejected: RuntimeClass "missing" not found`)
	}},
	{Statement: "a LimitRange gives containers their defaults, and limits containers and claims (LimitRanger)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "limitranges"), kit.Manifest(`{metadata: {name: l}, spec: {limits: [
			{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 200m}, max: {cpu: "1"}, min: {cpu: 100m}},
			{type: PersistentVolumeClaim, max: {storage: 500Mi}}]}}`)).Created(t)
		var created kit.Answer
		harness.Eventually(t, "the defaults are given", func() bool {
			created = c.Post(t, c.Path("v1", "pods")+"?dryRun=All", podAsking("p", "{}")).Created(t)
			return container(t, created)["resources"].(map[string]any)["limits"] != nil
		})
		kit.Equal(t, container(t, created)["resources"], any(map[string]any{"limits": map[string]any{"cpu": "500m"},
			"requests": map[string]any{"cpu": "200m"}}))
		c.Post(t, c.Path("v1", "pods"), podAsking("p", `{limits: {cpu: "2"}}`)).Forbidden(t, "maximum cpu usage per Container is 1, but limit is 2")
		c.Post(t, c.Path("v1", "pods"), podAsking("p", "{requests: {cpu: 50m}}")).Forbidden(t,
			"minimum cpu usage per Container is 100m, but request is 50m")
		c.Post(t, c.Path("v1", "persistentvolumeclaims"), claim("c", "")).Forbidden(t,
			"maximum storage usage per PersistentVolumeClaim is 500Mi, but request is 1Gi")
	}},
	{Statement: "a namespace's labels define which Pods are allowed, and which cause warnings (PodSecurity)", Proof: provePodSecurity},
	privilegedPods,
	{Statement: "a Pod bound to a node gets the labels of its zone and region (PodTopologyLabels)", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.ClusterPath("v1", "nodes"), kit.Manifest("{metadata: {name: %s, labels: {topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r, other: o}}}", c.Namespace)).Created(t)
		c.Post(t, c.Path("v1", "pods"), podAsking("p", "{}")).Created(t)
		harness.Eventually(t, "the Pod is bound", func() bool { // rejected until admission has the node
			return c.Post(t, c.Path("v1", "pods", "p", "binding"), kit.Manifest("{metadata: {name: p}, target: {kind: Node, name: %s}}", c.Namespace)).Code == http.StatusCreated
		})
		kit.Equal(t, c.Get(t, c.Path("v1", "pods", "p")).Value(t, "metadata", "labels"),
			any(map[string]any{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}))
	}},
}

func provePodSecurity(t *testing.T, c *kit.Cluster) {
	c.MakeDefaultServiceAccount(t)
	pods, namespace := c.Path("v1", "pods"), c.ClusterPath("v1", "namespaces", c.Namespace)
	label := func(query, mode, level string) kit.Answer {
		return c.Patch(t, kit.MergePatch, namespace+query, kit.Manifest(`{metadata: {labels: {pod-security.kubernetes.io/%s: %s}}}`, mode, level))
	}
	privileged := kit.With(kit.Pod("p"), true, "spec", "hostNetwork")
	c.Post(t, pods, privileged).Created(t)
	label("", "enforce", "strict").Invalid(t,
		`metadata.labels[pod-security.kubernetes.io/enforce]`, "must be one of privileged, baseline, restricted")
	harness.Eventually(t, "the server warns about the Pod", func() bool { // once admission's informer has it
		warned := label("?dryRun=All", "enforce", "baseline").OK(t)
		warnings := strings.Join(warned.Header.Values("Warning"), "\n")
		return strings.Contains(warnings, `existing pods in namespace \"`+c.Namespace+`\" violate the new PodSecurity enforce level \"baseline:latest\"`) &&
			strings.Contains(warnings, "p: host namespaces")
	})

	label("", "enforce", "baseline").OK(t)
	label("", "warn", "restricted").OK(t)
	another := func(pod map[string]any) kit.Answer {
		return c.Post(t, pods+"?dryRun=All", kit.With(pod, "another", "metadata", "name"))
	}
	harness.Eventually(t, "the labels are in effect", func() bool {
		return another(privileged).Code == http.StatusForbidden && len(another(kit.Pod("p")).Header.Values("Warning")) > 0
	})
	another(privileged).Forbidden(t, `pods "another" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	c.Patch(t, kit.MergePatch, pods+"/p", `{"metadata":{"labels":{"a":"b"}}}`).OK(t) // it already exists

	// Workloads that create such Pods cause warnings, but are not rejected.
	unsafe := kit.Deployment("d")
	harness.Must(t, unstructured.SetNestedField(unsafe, true, "spec", "template", "spec", "hostNetwork"))
	made := c.Post(t, c.Path("apps/v1", "deployments"), unsafe).Created(t)
	if !slices.ContainsFunc(made.Header.Values("Warning"), func(warning string) bool {
		return strings.Contains(warning, `would violate PodSecurity \"restricted:latest\": host namespaces`)
	}) {
		t.Errorf("for the Deployment, the server warns %q", made.Header.Values("Warning"))
	}
}

// overQuota waits until an object is rejected because of a quota, with a message that has these parts. A recount, which happens
// whenever a kind is defined, counts what its informers have, so a quota may briefly report too little usage.
func overQuota(t testing.TB, c *kit.Cluster, path string, object map[string]any, parts ...string) {
	t.Helper()
	harness.Eventually(t, "the quota rejects it", func() bool {
		a := c.Post(t, path, object).Want(t, http.StatusForbidden, http.StatusCreated)
		if a.Code == http.StatusCreated {
			c.Delete(t, path+"/"+a.Text(t, "metadata", "name")+"?gracePeriodSeconds=0").OK(t)
			return false
		}
		a.Forbidden(t, parts...)
		return true
	})
}
