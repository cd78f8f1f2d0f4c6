package concepts

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
)

// Section "Admission control", in what is no Pod: what the plugins that are on by default do. Webhooks and policies have
// sections of their own; approval and signing of certificates are shown with bootstrap tokens.
var admission = []promise{
	{"nothing is created in a namespace that is missing or going, and some namespaces stay (NamespaceLifecycle)", func(t *testing.T, c *cluster) {
		c.post(t, c.global("v1", "namespaces", c.namespace+"-missing", "configmaps"), configMap("a", nil)).
			refused(t, http.StatusNotFound, "NotFound", `namespaces "`+c.namespace+`-missing" not found`)
		held := configMap("held", nil)
		held["metadata"] = map[string]any{"name": "held", "finalizers": []string{"example.com/hold"}}
		c.post(t, c.path("v1", "configmaps"), held).want(t, http.StatusCreated)
		c.delete(t, c.global("v1", "namespaces", c.namespace)).want(t, http.StatusOK)
		refusal := c.post(t, c.path("v1", "configmaps"), configMap("a", nil))
		refusal.forbidden(t, `configmaps "a" is forbidden: unable to create new content in namespace `+c.namespace+` because it is being terminated`)
		if !strings.Contains(string(refusal.Body), `"reason":"NamespaceTerminating"`) {
			t.Errorf("the cause is missing in %s", refusal.Body)
		}
		eventually(t, "the held ConfigMap is to be deleted", func() bool {
			return c.get(t, c.path("v1", "configmaps", "held")).text(t, "metadata", "deletionTimestamp") != ""
		})
		c.patch(t, mergePatch, c.path("v1", "configmaps", "held"), `{"metadata":{"finalizers":null}}`).want(t, http.StatusOK)
		for _, name := range []string{"default", "kube-system", "kube-public"} {
			c.delete(t, c.global("v1", "namespaces", name)+"?dryRun=All").forbidden(t, "this namespace may not be deleted")
		}
	}},
	{"a quota bounds how much there is of what, and tells how much there is (ResourceQuota)", func(t *testing.T, c *cluster) {
		quota := c.path("v1", "resourcequotas", "q")
		c.post(t, c.path("v1", "resourcequotas"), manifest(`{metadata: {name: q}, spec: {hard: {count/secrets: "2", requests.cpu: "1", pods: "5"}}}`)).want(t, http.StatusCreated)
		eventually(t, "the quota is counted", func() bool { return c.get(t, quota).text(t, "status", "used", "count/secrets") == "0" })
		secret := func(name string) map[string]any { return manifest("{metadata: {name: %s}}", name) }
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "secrets"), secret("b")).want(t, http.StatusCreated)
		c.overQuota(t, c.path("v1", "secrets"), secret("c"),
			`secrets "c" is forbidden: exceeded quota: q, requested: count/secrets=1, used: count/secrets=2, limited: count/secrets=2`)
		c.delete(t, c.path("v1", "secrets", "a")).want(t, http.StatusOK)
		eventually(t, "what is deleted counts no more", func() bool { return c.get(t, quota).text(t, "status", "used", "count/secrets") == "1" })
		c.post(t, c.path("v1", "secrets"), secret("c")).want(t, http.StatusCreated)

		c.serviceAccount(t)
		c.post(t, c.path("v1", "pods"), pod("p")).forbidden(t, "failed quota: q: must specify requests.cpu")
		c.post(t, c.path("v1", "pods"), podAsking("p", `{requests: {cpu: "2"}}`)).forbidden(t,
			"exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1")
		c.post(t, c.path("v1", "pods"), podAsking("p", "{requests: {cpu: 600m}}")).want(t, http.StatusCreated)
		c.overQuota(t, c.path("v1", "pods"), podAsking("p2", "{requests: {cpu: 600m}}"), "used: requests.cpu=600m")
	}},
	{"a claim that names no class gets the default one (DefaultStorageClass)", func(t *testing.T, c *cluster) {
		c.post(t, c.global("storage.k8s.io/v1", "storageclasses"), manifest(`{metadata: {name: %s, annotations: {storageclass.kubernetes.io/is-default-class: "true"}},
			provisioner: example.com/none}`, c.namespace)).want(t, http.StatusCreated)
		eventually(t, "a claim gets the class", func() bool {
			return c.post(t, c.path("v1", "persistentvolumeclaims")+"?dryRun=All", claim("c", "")).want(t,
				http.StatusCreated).text(t, "spec", "storageClassName") == c.namespace
		})
		none := c.post(t, c.path("v1", "persistentvolumeclaims"), claim("none", `storageClassName: "", `)).want(t, http.StatusCreated)
		if class := none.value(t, "spec", "storageClassName"); class != "" {
			t.Errorf("a claim that wants no class has got %v", class)
		}
	}},
	{"a claim in use by a Pod stays until the Pod is gone (StorageObjectInUseProtection)", func(t *testing.T, c *cluster) {
		c.account(t, "robot")
		c.podWith(t, "p", "node")
		path := c.path("v1", "persistentvolumeclaims", "p")
		equal(t, c.get(t, path).value(t, "metadata", "finalizers"), []any{"kubernetes.io/pvc-protection"})
		c.delete(t, path).want(t, http.StatusOK)
		c.delete(t, c.path("v1", "pods", "p")+"?gracePeriodSeconds=0").want(t, http.StatusOK)
		c.gone(t, path)
		volume := c.post(t, c.global("v1", "persistentvolumes"), manifest(`{metadata: {name: %s}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce],
			storageClassName: none, csi: {driver: example.com, volumeHandle: h}}}`, c.namespace)).want(t, http.StatusCreated)
		equal(t, volume.value(t, "metadata", "finalizers"), []any{"kubernetes.io/pv-protection"})
	}},
	{"only a bound claim grows, and only of a class that lets it (PersistentVolumeClaimResize)", func(t *testing.T, c *cluster) {
		path := c.path("v1", "persistentvolumeclaims", "c")
		for _, class := range []string{"fixed", "elastic"} {
			c.post(t, c.global("storage.k8s.io/v1", "storageclasses"),
				manifest(`{metadata: {name: %s-%s}, provisioner: example.com/none, allowVolumeExpansion: %t}`,
					class, c.namespace, class == "elastic")).want(t, http.StatusCreated)
		}
		grow := func() answer {
			return c.patch(t, mergePatch, path, `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
		}
		for _, class := range []string{"fixed", "elastic"} {
			c.post(t, c.path("v1", "persistentvolumeclaims"), claim("c",
				"storageClassName: "+class+"-"+c.namespace+", volumeName: v, ")).want(t, http.StatusCreated)
			grow().refused(t, http.StatusUnprocessableEntity, "Invalid",
				"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")
			c.patch(t, mergePatch, path+"/status", `{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`).want(t, http.StatusOK)
			if class == "fixed" {
				grow().forbidden(t, "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
			} else {
				eventually(t, "the server knows the class", func() bool { return grow().Code == http.StatusOK })
			}
			c.delete(t, path).want(t, http.StatusOK)
			c.gone(t, path)
		}
	}},
	{"an Ingress that names no class gets the default one (DefaultIngressClass)", func(t *testing.T, c *cluster) {
		c.post(t, c.global("networking.k8s.io/v1", "ingressclasses"), manifest(`{metadata: {name: %s, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}},
			spec: {controller: example.com/none}}`, c.namespace)).want(t, http.StatusCreated)
		eventually(t, "an Ingress gets the class", func() bool {
			return c.post(t, c.path("networking.k8s.io/v1", "ingresses")+"?dryRun=All",
				manifest(`{metadata: {name: i}, spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}}`)).
				want(t, http.StatusCreated).text(t, "spec", "ingressClassName") == c.namespace
		})
	}},
	{"no certificate for system:masters is asked of the signer of clients (CertificateSubjectRestriction)", func(t *testing.T, c *cluster) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		asked, err := cert.MakeCSR(key, &pkix.Name{CommonName: "root", Organization: []string{"system:masters"}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		request := base64.StdEncoding.EncodeToString(asked)
		c.post(t, c.global("certificates.k8s.io/v1", "certificatesigningrequests"), manifest(`{metadata: {name: %s},
			spec: {signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: %s}}`, c.namespace, request)).
			forbidden(t, "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed")
	}},
	{"a new Node is not ready until somebody says so (TaintNodesByCondition)", func(t *testing.T, c *cluster) {
		taints := c.post(t, c.global("v1", "nodes"), manifest("{metadata: {name: %s}}", c.namespace)).want(t, http.StatusCreated).value(t, "spec", "taints")
		equal(t, taints, []any{map[string]any{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}})
	}},
}

// claim is a PersistentVolumeClaim of 1Gi. What is in spec goes into its spec, in YAML.
func claim(name, spec string) map[string]any {
	return manifest("{metadata: {name: %s}, spec: {%saccessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", name, spec)
}

// podAsking is a Pod whose container asks for resources, in YAML.
func podAsking(name, resources string) map[string]any {
	return manifest("{metadata: {name: %s}, spec: {containers: [{name: c, image: i, resources: %s}]}}", name, resources)
}

// container is the first of a Pod's containers.
func container(t testing.TB, pod answer) map[string]any {
	t.Helper()
	containers, _ := pod.value(t, "spec", "containers").([]any)
	if len(containers) == 0 {
		t.Fatalf("no Pod: %s", pod.Body)
	}
	return containers[0].(map[string]any)
}

// Section "Admission control", in Pods: what the plugins that are on by default do.
var admissionOfPods = []promise{
	{"a Pod runs as the account default, if it names none, and finds its token mounted (ServiceAccount)", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		pods := c.path("v1", "pods")
		created := c.post(t, pods, podAsking("p", "{}")).want(t, http.StatusCreated)
		if account := created.text(t, "spec", "serviceAccountName"); account != "default" {
			t.Errorf("it runs as %q", account)
		}
		mounts, _ := container(t, created)["volumeMounts"].([]any)
		if len(mounts) != 1 || mounts[0].(map[string]any)["mountPath"] != "/var/run/secrets/kubernetes.io/serviceaccount" {
			t.Errorf("it mounts %v", mounts)
		}
		for _, part := range []string{`"expirationSeconds":3607`, `"name":"kube-root-ca.crt"`, `"fieldPath":"metadata.namespace"`} {
			if !strings.Contains(string(created.Body), part) {
				t.Errorf("its volume lacks %s", part)
			}
		}
		without := c.post(t, pods, pod("without")).want(t, http.StatusCreated) // automountServiceAccountToken: false
		if volumes := without.value(t, "spec", "volumes"); volumes != nil {
			t.Errorf("it has the volumes %v", volumes)
		}
		c.post(t, pods, with(pod("p2"), "missing", "spec", "serviceAccountName")).
			forbidden(t, `error looking up service account `+c.namespace+`/missing: serviceaccount "missing" not found`)
		c.post(t, c.path("v1", "serviceaccounts"), manifest("{metadata: {name: puller}, imagePullSecrets: [{name: registry}]}")).want(t, http.StatusCreated)
		pulls := c.post(t, pods, with(pod("pulls"), "puller", "spec", "serviceAccountName")).want(t, http.StatusCreated)
		equal(t, pulls.value(t, "spec", "imagePullSecrets"), []any{map[string]any{"name": "registry"}})
	}},
	{"a Pod stays five minutes on a node that is not ready or not reached (DefaultTolerationSeconds)", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		created := c.post(t, c.path("v1", "pods"), pod("p")).want(t, http.StatusCreated)
		tolerations := []any{}
		for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
			tolerations = append(tolerations, map[string]any{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": float64(300)})
		}
		equal(t, created.value(t, "spec", "tolerations"), tolerations)
	}},
	{"a Pod has the priority of its class (Priority)", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		classed := func(class string) answer {
			return c.post(t, c.path("v1", "pods")+"?dryRun=All", with(pod("p"), class, "spec", "priorityClassName"))
		}
		c.post(t, c.global("scheduling.k8s.io/v1", "priorityclasses"),
			manifest("{metadata: {name: %s}, value: 1000, preemptionPolicy: Never}", c.namespace)).want(t, http.StatusCreated)
		eventually(t, "the class is known", func() bool { return classed(c.namespace).Code == http.StatusCreated })
		created := classed(c.namespace)
		equal(t, created.value(t, "spec", "priority"), float64(1000))
		equal(t, created.value(t, "spec", "preemptionPolicy"), "Never")
		equal(t, classed("system-node-critical").value(t, "spec", "priority"), float64(2000001000))
		classed("missing").forbidden(t, "no PriorityClass with name missing was found")
		c.post(t, c.path("v1", "pods"), with(with(pod("p"), c.namespace, "spec", "priorityClassName"), 5, "spec", "priority")).
			forbidden(t, "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name")
	}},
	{"a Pod has the overhead and the nodes of its runtime class (RuntimeClass)", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		classed := func(class string) answer {
			return c.post(t, c.path("v1", "pods")+"?dryRun=All", with(pod("p"), class, "spec", "runtimeClassName"))
		}
		c.post(t, c.global("node.k8s.io/v1", "runtimeclasses"), manifest(`{metadata: {name: %s}, handler: h, overhead: {podFixed: {cpu: 100m}},
			scheduling: {nodeSelector: {sandbox: "yes"}}}`, c.namespace)).want(t, http.StatusCreated)
		eventually(t, "the class is known", func() bool { return classed(c.namespace).Code == http.StatusCreated })
		created := classed(c.namespace)
		equal(t, created.value(t, "spec", "overhead"), map[string]any{"cpu": "100m"})
		equal(t, created.value(t, "spec", "nodeSelector"), map[string]any{"sandbox": "yes"})
		classed("missing").forbidden(t, `pod rejected: RuntimeClass "missing" not found`)
	}},
	{"a LimitRange gives containers their defaults, and bounds them and claims (LimitRanger)", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.path("v1", "limitranges"), manifest(`{metadata: {name: l}, spec: {limits: [
			{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 200m}, max: {cpu: "1"}, min: {cpu: 100m}},
			{type: PersistentVolumeClaim, max: {storage: 500Mi}}]}}`)).want(t, http.StatusCreated)
		var created answer
		eventually(t, "the defaults are given", func() bool {
			created = c.post(t, c.path("v1", "pods")+"?dryRun=All", podAsking("p", "{}")).want(t, http.StatusCreated)
			return container(t, created)["resources"].(map[string]any)["limits"] != nil
		})
		equal(t, container(t, created)["resources"], any(map[string]any{"limits": map[string]any{"cpu": "500m"},
			"requests": map[string]any{"cpu": "200m"}}))
		c.post(t, c.path("v1", "pods"), podAsking("p", `{limits: {cpu: "2"}}`)).forbidden(t, "maximum cpu usage per Container is 1, but limit is 2")
		c.post(t, c.path("v1", "pods"), podAsking("p", "{requests: {cpu: 50m}}")).forbidden(t,
			"minimum cpu usage per Container is 100m, but request is 50m")
		c.post(t, c.path("v1", "persistentvolumeclaims"), claim("c", "")).forbidden(t,
			"maximum storage usage per PersistentVolumeClaim is 500Mi, but request is 1Gi")
	}},
	{"a namespace's labels say how secure its Pods must be, and what is warned of (PodSecurity)", provePodSecurity},
	privilegedPods,
	{"a Pod that is bound to a node gets the labels of its zone and region (PodTopologyLabels)", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.global("v1", "nodes"), manifest("{metadata: {name: %s, labels: {topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r, other: o}}}", c.namespace)).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "pods"), podAsking("p", "{}")).want(t, http.StatusCreated)
		eventually(t, "the Pod is bound", func() bool { // before the server knows the node, it refuses
			return c.post(t, c.path("v1", "pods", "p", "binding"), manifest("{metadata: {name: p}, target: {kind: Node, name: %s}}", c.namespace)).Code == http.StatusCreated
		})
		equal(t, c.get(t, c.path("v1", "pods", "p")).value(t, "metadata", "labels"),
			any(map[string]any{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}))
	}},
}

func provePodSecurity(t *testing.T, c *cluster) {
	c.serviceAccount(t)
	pods, namespace := c.path("v1", "pods"), c.global("v1", "namespaces", c.namespace)
	label := func(query, mode, level string) answer {
		return c.patch(t, mergePatch, namespace+query, manifest(`{metadata: {labels: {pod-security.kubernetes.io/%s: %s}}}`, mode, level))
	}
	privileged := with(pod("p"), true, "spec", "hostNetwork")
	c.post(t, pods, privileged).want(t, http.StatusCreated)
	label("", "enforce", "strict").refused(t, http.StatusUnprocessableEntity, "Invalid",
		`metadata.labels[pod-security.kubernetes.io/enforce]`, "must be one of privileged, baseline, restricted")
	warned := label("?dryRun=All", "enforce", "baseline").want(t, http.StatusOK)
	if warnings := strings.Join(warned.Header.Values("Warning"), "\n"); !strings.Contains(warnings,
		`existing pods in namespace \"`+c.namespace+`\" violate the new PodSecurity enforce level \"baseline:latest\"`) ||
		!strings.Contains(warnings, "p: host namespaces") {
		t.Errorf("to the dry run the server warns %q", warnings)
	}

	label("", "enforce", "baseline").want(t, http.StatusOK)
	label("", "warn", "restricted").want(t, http.StatusOK)
	another := func(pod map[string]any) answer {
		return c.post(t, pods+"?dryRun=All", with(pod, "another", "metadata", "name"))
	}
	eventually(t, "the labels are in force", func() bool {
		return another(privileged).Code == http.StatusForbidden && len(another(pod("p")).Header.Values("Warning")) > 0
	})
	another(privileged).forbidden(t, `pods "another" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	c.patch(t, mergePatch, pods+"/p", `{"metadata":{"labels":{"a":"b"}}}`).want(t, http.StatusOK) // it is there already

	// What makes Pods is warned of, not refused.
	unsafe := deployment("d")
	if err := unstructured.SetNestedField(unsafe, true, "spec", "template", "spec", "hostNetwork"); err != nil {
		t.Fatal(err)
	}
	made := c.post(t, c.path("apps/v1", "deployments"), unsafe).want(t, http.StatusCreated)
	if !slices.ContainsFunc(made.Header.Values("Warning"), func(warning string) bool {
		return strings.Contains(warning, `would violate PodSecurity \"restricted:latest\": host namespaces`)
	}) {
		t.Errorf("of the Deployment the server warns %q", made.Header.Values("Warning"))
	}
}

// overQuota waits until an object is refused because of a quota, as the parts of a message say. A recount (there is one
// whenever a kind is defined) counts what its informers have, so that for a moment a quota may have room that is taken.
func (c *cluster) overQuota(t testing.TB, path string, object map[string]any, parts ...string) {
	t.Helper()
	eventually(t, "the quota refuses", func() bool {
		a := c.post(t, path, object).want(t, http.StatusForbidden, http.StatusCreated)
		if a.Code == http.StatusCreated {
			c.delete(t, path+"/"+a.text(t, "metadata", "name")+"?gracePeriodSeconds=0").want(t, http.StatusOK)
			return false
		}
		a.forbidden(t, parts...)
		return true
	})
}
