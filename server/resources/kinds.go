package resources

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/batch"

	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Kinds are the built-in kinds, as they are stored.
var Kinds = &apistorage.Kinds{
	Scheme: legacyscheme.Scheme,
	Cells:  cells,
	Complete: map[metav1.TypeMeta]func(runtime.Object){
		{APIVersion: "batch/v1", Kind: "Job"}: labelJob,
	},
}

// labelJob gives a Job without labels those of its template, like its defaulting. Some of the template's labels are set only by the
// strategy, which runs after the client's object was defaulted.
func labelJob(obj runtime.Object) {
	if job, ok := obj.(*batch.Job); ok && len(job.Labels) == 0 {
		job.Labels = maps.Clone(job.Spec.Template.Labels)
	}
}

// cells are the fields that determine the cells of a Table, for kinds with many or large objects. Besides what upstream's printers
// read, they include annotations, which a conversion may drop, and fields whose defaults would have to be computed, such as
// imagePullPolicy.
var cells = map[metav1.TypeMeta]map[string][]string{
	{APIVersion: "v1", Kind: "Pod"}: {
		"metadata":                     {"name", "namespace", "creationTimestamp", "deletionTimestamp", "annotations"},
		"spec":                         {"containers", "initContainers", "nodeName", "readinessGates"},
		"spec.containers":              {"imagePullPolicy"},
		"spec.initContainers":          {"name", "restartPolicy", "imagePullPolicy"},
		"status":                       {"phase", "reason", "conditions", "podIP", "podIPs", "nominatedNodeName", "initContainerStatuses", "containerStatuses"},
		"status.conditions":            {"type", "status", "reason"},
		"status.initContainerStatuses": {"name", "state", "lastState", "ready", "restartCount", "started"},
		"status.containerStatuses":     {"name", "state", "lastState", "ready", "restartCount", "started"},
	},
	{APIVersion: "v1", Kind: "Node"}:                  {"status": {"conditions", "addresses", "nodeInfo"}},
	{APIVersion: "v1", Kind: "PodTemplate"}:           cellsOfTemplate("template"),
	{APIVersion: "v1", Kind: "ReplicationController"}: cellsOfTemplate("spec.template"),
	{APIVersion: "apps/v1", Kind: "DaemonSet"}:        cellsOfTemplate("spec.template"),
	{APIVersion: "apps/v1", Kind: "Deployment"}:       cellsOfTemplate("spec.template"),
	{APIVersion: "apps/v1", Kind: "ReplicaSet"}:       cellsOfTemplate("spec.template"),
	{APIVersion: "apps/v1", Kind: "StatefulSet"}:      cellsOfTemplate("spec.template"),
	{APIVersion: "batch/v1", Kind: "Job"}:             cellsOfTemplate("spec.template"),
	{APIVersion: "batch/v1", Kind: "CronJob"}:         cellsOfTemplate("spec.jobTemplate.spec.template"),
}

// cellsOfTemplate are the cells of a kind with a pod template.
func cellsOfTemplate(path string) map[string][]string {
	return map[string][]string{
		path + ".spec":            {"containers", "nodeSelector"},
		path + ".spec.containers": {"name", "image", "imagePullPolicy"},
	}
}
