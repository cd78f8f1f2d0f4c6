package badinput

import "strings"

// numbers are values of numeric parameters, by what is wrong with them. Most fit no type; some fit one but are out of range.
var numbers = map[string]string{
	"zero": "0", "minus one": "-1", "signed": "+1", "zeros before": "0007",
	"largest of 32 bits": "2147483647", "beyond 32 bits": "2147483648", "largest of 64 bits": "9223372036854775807",
	"beyond 64 bits": "9223372036854775808", "beyond 64 bits unsigned": "18446744073709551616",
	"smallest of 64 bits": "-9223372036854775808", "below 64 bits": "-9223372036854775809",
	"a fraction": "1.5", "an exponent": "1e3", "hexadecimal": "0x10", "empty": "", "with a space": " 1", "no number": "many",
}

// jsonNumbers are the same in JSON.
var jsonNumbers = map[string]string{
	"zero": "0", "minus one": "-1", "largest of 32 bits": "2147483647", "beyond 32 bits": "2147483648",
	"largest of 64 bits": "9223372036854775807", "beyond 64 bits": "9223372036854775808", "below 64 bits": "-9223372036854775809",
	"beyond all": "1e400", "a fraction": "1.5", "an exponent": "1e3", "a string": `"1"`, "null": "null",
}

// numberCases put each number wherever a request can have one. None of them changes anything.
func numberCases() []badCase {
	var all []badCase
	for name, number := range numbers {
		all = append(all, numberQueries(name, number)...)
	}
	for name, number := range jsonNumbers {
		all = append(all, numberBodies(name, number)...)
		for _, place := range []struct{ name, path, suffix string }{{"config maps", configMaps, ""}, {"widgets", widgets, ""}} {
			all = append(all, waiting(get("number: continue: "+place.name+": "+name,
				query(place.path, "limit", "1", "continue", token(`{"v":"meta.k8s.io/v1","rv":`+number+`,"start":"zzz"}`)))))
		}
	}
	sortByName(all)
	return all
}

// numberQueries are the parameters of reads, deletions and logs.
func numberQueries(name, number string) []badCase {
	all := []badCase{
		del("number: grace period: "+name, query(pods+"/pod", "dryRun", "All", "gracePeriodSeconds", number), ""),
		del("number: orphans: "+name, query(pods+"/pod", "dryRun", "All", "orphanDependents", number), ""),
		del("number: propagation: "+name, query(pods+"/pod", "dryRun", "All", "propagationPolicy", number), ""),
		del("number: grace period of a collection: "+name, query(pods, "dryRun", "All", "gracePeriodSeconds", number, "labelSelector", "none=none"), ""),
		del("number: limit of a deletion: "+name, query(configMaps, "dryRun", "All", "limit", number, "labelSelector", "none=none"), ""),
		get("number: timeout: "+name, query(configMaps, "timeout", number, "labelSelector", "none=none")),
		get("number: pretty: "+name, query(configMaps, "pretty", number, "labelSelector", "none=none")),
		get("number: greater than: "+name, query(configMaps, "labelSelector", "a>"+number)),
		get("number: port of a pod: "+name, query(pods+"/pod:"+number+"/proxy", "a", "b")),
		get("number: port of a service: "+name, query(services+"/svc:"+number+"/proxy", "a", "b")),
		get("number: forwarded port: "+name, query(pods+"/pod/portforward", "ports", number)),
	}
	for _, parameter := range []string{"tailLines", "sinceSeconds", "limitBytes"} {
		all = append(all, get("number: log: "+parameter+": "+name, query(pods+"/pod/log", parameter, number)))
	}
	for place, path := range map[string]string{"config maps": configMaps, "widgets": widgets} {
		all = append(all,
			get("number: limit of none: "+place+": "+name, query(path, "limit", number, "labelSelector", "none=none")),
			get("number: limit of one: "+place+": "+name, query(path, "limit", number, "fieldSelector", "metadata.name=cm")),
			get("number: timeout of a list: "+place+": "+name, query(path, "timeoutSeconds", number, "labelSelector", "none=none")),
			waiting(get("number: list not older: "+place+": "+name, query(path, "resourceVersion", number, "labelSelector", "none=none"))),
			waiting(get("number: list exactly: "+place+": "+name, query(path, "resourceVersion", number, "resourceVersionMatch", "Exact", "labelSelector", "none=none"))),
		)
		if name != "zeros before" { // how much of that history is kept differs
			all = append(all, waiting(get("number: watch: "+place+": "+name,
				query(path, "resourceVersion", number, "watch", "true", "timeoutSeconds", "1", "labelSelector", "none=none"))))
		}
	}
	if strings.Trim(number, "+-0123456789") != "" { // for the others, a watch would run that long
		all = append(all, get("number: timeout of a watch: "+name, query(configMaps, "timeoutSeconds", number, "watch", "true", "labelSelector", "none=none")))
	}
	return append(all, waiting(get("number: get not older: "+name, query(configMaps+"/cm", "resourceVersion", number))))
}

// numberBodies are fields of objects and of options.
func numberBodies(name, number string) []badCase {
	const dry = "?dryRun=All"
	var all []badCase
	for field, template := range map[string]struct{ path, body string }{
		"generation":               {configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n","generation":#}}`},
		"deletion grace period":    {configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n","deletionGracePeriodSeconds":#}}`},
		"replicas":                 {deployments, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"n"},"spec":{"replicas":#,"revisionHistoryLimit":#,"progressDeadlineSeconds":#,"minReadySeconds":#,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
		"surge":                    {deployments, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"n"},"spec":{"strategy":{"rollingUpdate":{"maxSurge":#,"maxUnavailable":#}},"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
		"port":                     {services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"n"},"spec":{"clusterIP":"None","ports":[{"port":#}]}}`},
		"target port":              {services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"n"},"spec":{"clusterIP":"None","ports":[{"port":80,"targetPort":#}]}}`},
		"node port":                {services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"n"},"spec":{"clusterIP":"None","ports":[{"port":80,"nodePort":#}]}}`},
		"affinity":                 {services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"n"},"spec":{"clusterIP":"None","sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":#}},"ports":[{"port":80}]}}`},
		"container port":           {pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","ports":[{"containerPort":#,"hostPort":#}]}]}}`},
		"quantity":                 {pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","resources":{"requests":{"memory":#}}}]}}`},
		"times of a pod":           {pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n"},"spec":{"automountServiceAccountToken":false,"terminationGracePeriodSeconds":#,"activeDeadlineSeconds":#,"containers":[{"name":"c","image":"i"}]}}`},
		"users of a pod":           {pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n"},"spec":{"automountServiceAccountToken":false,"securityContext":{"runAsUser":#,"fsGroup":#},"containers":[{"name":"c","image":"i"}]}}`},
		"probe":                    {pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","readinessProbe":{"tcpSocket":{"port":#},"periodSeconds":#,"failureThreshold":#}}]}}`},
		"job":                      {"/apis/batch/v1/namespaces/" + namespace + "/jobs", `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"n"},"spec":{"parallelism":#,"completions":#,"backoffLimit":#,"ttlSecondsAfterFinished":#,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`},
		"lease":                    {"/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"n"},"spec":{"leaseDurationSeconds":#,"leaseTransitions":#}}`},
		"priority":                 {"/apis/scheduling.k8s.io/v1/priorityclasses", `{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"n"},"value":#}`},
		"quota":                    {core + "/resourcequotas", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"n"},"spec":{"hard":{"pods":#}}}`},
		"disruption budget":        {"/apis/policy/v1/namespaces/" + namespace + "/poddisruptionbudgets", `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"n"},"spec":{"minAvailable":#}}`},
		"flow schema":              {"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"n"},"spec":{"matchingPrecedence":#,"priorityLevelConfiguration":{"name":"exempt"}}}`},
		"priority level":           {"/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"PriorityLevelConfiguration","metadata":{"name":"n"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":#,"lendablePercent":#,"limitResponse":{"type":"Reject"}}}}`},
		"custom resource":          {widgets, `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"n"},"spec":{"size":#}}`},
		"generation of a custom":   {widgets, `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"n","generation":#},"spec":{"size":1}}`},
		"expiry of a request":      {"/apis/certificates.k8s.io/v1/certificatesigningrequests", `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"n"},"spec":{"signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"],"request":"eA==","expirationSeconds":#}}`},
		"size of a volume":         {"/api/v1/persistentvolumes", `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"n"},"spec":{"capacity":{"storage":#},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}}}`},
		"grace period of eviction": {pods + "/pod/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"pod"},"deleteOptions":{"gracePeriodSeconds":#,"dryRun":["All"]}}`},
	} {
		all = append(all, post("number: "+field+": "+name, template.path+dry, strings.ReplaceAll(template.body, "#", number)))
	}
	for field, body := range map[string]string{
		"grace period in a body":      `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"],"gracePeriodSeconds":#}`,
		"orphans in a body":           `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"],"orphanDependents":#}`,
		"version in a precondition":   `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"],"preconditions":{"resourceVersion":#}}`,
		"version text in a condition": `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"],"preconditions":{"resourceVersion":"#"}}`,
	} {
		all = append(all, del("number: "+field+": "+name, pods+"/pod"+dry, strings.ReplaceAll(body, "#", strings.Trim(number, `"`))))
	}
	version := strings.Trim(number, `"`)
	return append(all,
		post("number: expiry of a token: "+name, core+"/serviceaccounts/default/token"+dry, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["a"],"expirationSeconds":`+number+`}}`),
		put("number: scale: "+name, deployments+"/web/scale"+dry, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web"},"spec":{"replicas":`+number+`}}`),
		patch("number: scale of a custom resource: "+name, mergeType, widgets+"/one/scale"+dry, `{"spec":{"replicas":`+number+`}}`),
		put("number: version of an update: "+name, configMaps+"/cm"+dry, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","resourceVersion":"`+version+`"},"data":{"a":"1"}}`),
		patch("number: version of a patch: "+name, mergeType, configMaps+"/cm"+dry, `{"metadata":{"resourceVersion":"`+version+`"},"data":{"a":"2"}}`),
		put("number: version of a custom update: "+name, widgets+"/one"+dry, `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"one","resourceVersion":"`+version+`"},"spec":{"size":3}}`),
		post("number: version of a creation: "+name, configMaps+dry, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n","resourceVersion":"`+version+`"}}`),
		patch("number: index of a JSON patch: "+name, jsonPatchType, deployments+"/web"+dry, `[{"op":"remove","path":"/spec/template/spec/containers/`+version+`"}]`),
	)
}
