package trial

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations by which the controller of volumes, the scheduler and what provides volumes outside of the control plane work together.
const (
	provisionerAnnotation   = "volume.kubernetes.io/storage-provisioner"
	selectedNodeAnnotation  = "volume.kubernetes.io/selected-node"
	provisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
	noProvisioner           = "kubernetes.io/no-provisioner"
)

// claim makes the volume that a claim waits for, as an external provisioner does, and lets a volume grow whose claim has grown.
func (p *parts) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.DeletionTimestamp != nil {
		return nil
	}
	if claim.Spec.VolumeName != "" {
		return p.grow(ctx, claim)
	}
	provisioner := claim.Annotations[provisionerAnnotation]
	if provisioner == "" || provisioner == noProvisioner || claim.Spec.StorageClassName == nil {
		return nil
	}
	class, err := p.shared.Storage().V1().StorageClasses().Lister().Get(*claim.Spec.StorageClassName)
	if err != nil {
		return err
	}
	var node *corev1.Node
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
		if claim.Annotations[selectedNodeAnnotation] == "" {
			return nil
		}
		if node, err = p.shared.Core().V1().Nodes().Lister().Get(claim.Annotations[selectedNodeAnnotation]); err != nil {
			return err
		}
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID), Annotations: map[string]string{provisionedByAnnotation: provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode, MountOptions: class.MountOptions,
			StorageClassName: class.Name, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: provisioner, VolumeHandle: "pvc-" + string(claim.UID)}},
			NodeAffinity:           p.places(class, provisioner, node),
		},
	}
	if class.ReclaimPolicy != nil {
		volume.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	if _, err := p.volumes.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// places returns from where a new volume can be reached: nil is from everywhere. node is the one that the scheduler has chosen, if it has.
func (p *parts) places(class *storagev1.StorageClass, driver string, node *corev1.Node) *corev1.VolumeNodeAffinity {
	if node == nil {
		if len(class.AllowedTopologies) == 0 {
			return nil
		}
		var terms []corev1.NodeSelectorRequirement
		for _, r := range class.AllowedTopologies[0].MatchLabelExpressions {
			terms = append(terms, corev1.NodeSelectorRequirement{Key: r.Key, Operator: corev1.NodeSelectorOpIn, Values: r.Values[:min(1, len(r.Values))]})
		}
		return affinity(terms)
	}
	var terms []corev1.NodeSelectorRequirement
	for _, key := range p.topology(class, driver, node) {
		if value, ok := node.Labels[key]; ok {
			terms = append(terms, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
		}
	}
	return affinity(terms)
}

func affinity(terms []corev1.NodeSelectorRequirement) *corev1.VolumeNodeAffinity {
	if len(terms) == 0 {
		return nil
	}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: terms}}}}
}

// topology returns the labels of nodes that say from where a driver's volumes can be reached: those that the driver has named on the node, those of
// other volumes of the class, or those that the class allows.
func (p *parts) topology(class *storagev1.StorageClass, driver string, node *corev1.Node) []string {
	if on, err := p.shared.Storage().V1().CSINodes().Lister().Get(node.Name); err == nil {
		for _, d := range on.Spec.Drivers {
			if d.Name == driver {
				return d.TopologyKeys
			}
		}
	}
	keys := map[string]bool{}
	volumes, err := p.shared.Core().V1().PersistentVolumes().Lister().List(labels.Everything())
	for _, v := range volumes {
		if err != nil || v.Spec.StorageClassName != class.Name || v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
			continue
		}
		for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
			for _, r := range term.MatchExpressions {
				keys[r.Key] = true
			}
		}
	}
	if len(keys) == 0 {
		for _, term := range class.AllowedTopologies {
			for _, r := range term.MatchLabelExpressions {
				keys[r.Key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// grow gives a claim the size that it asks for, if its class allows that.
func (p *parts) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	has, bound := claim.Status.Capacity[corev1.ResourceStorage]
	if !bound || claim.Status.Phase != corev1.ClaimBound || wanted.Cmp(has) <= 0 || claim.Spec.StorageClassName == nil {
		return nil
	}
	class, err := p.shared.Storage().V1().StorageClasses().Lister().Get(*claim.Spec.StorageClassName)
	if err != nil || class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		return err
	}
	size := map[string]any{"capacity": corev1.ResourceList{corev1.ResourceStorage: wanted}}
	if err := patch(map[string]any{"spec": size}, func(text []byte) error {
		_, err := p.volumes.CoreV1().PersistentVolumes().Patch(ctx, claim.Spec.VolumeName, types.MergePatchType, text, metav1.PatchOptions{})
		return err
	}); err != nil {
		return err
	}
	return patch(map[string]any{"status": size}, func(text []byte) error {
		_, err := p.volumes.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
		return err
	})
}

func patch(object any, send func([]byte) error) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return send(text)
}

// volume deletes a volume that is released, if its policy says so, and lets go of one that is being deleted.
func (p *parts) volume(ctx context.Context, volume *corev1.PersistentVolume) error {
	if volume.DeletionTimestamp != nil {
		return patchFinalizers(volume.Finalizers, func(text []byte) error {
			_, err := p.volumes.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, text, metav1.PatchOptions{})
			return err
		})
	}
	if volume.Status.Phase != corev1.VolumeReleased || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || volume.Annotations[provisionedByAnnotation] == "" {
		return nil
	}
	return p.volumes.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(volume.UID))})
}

// patchFinalizers removes the finalizers of what attaches and provides volumes.
func patchFinalizers(finalizers []string, send func([]byte) error) error {
	left := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return strings.HasPrefix(f, "external-") })
	if equality.Semantic.DeepEqual(left, finalizers) {
		return nil
	}
	return patch(map[string]any{"metadata": map[string]any{"finalizers": left}}, send)
}

// attachment attaches a volume at once, as an external attacher does, and detaches it.
func (p *parts) attachment(ctx context.Context, a *storagev1.VolumeAttachment) error {
	attachments := p.volumes.StorageV1().VolumeAttachments()
	if a.DeletionTimestamp != nil {
		return patchFinalizers(a.Finalizers, func(text []byte) error {
			_, err := attachments.Patch(ctx, a.Name, types.MergePatchType, text, metav1.PatchOptions{})
			return err
		})
	}
	if a.Status.Attached {
		return nil
	}
	return patch(map[string]any{"status": map[string]any{"attached": true}}, func(text []byte) error {
		_, err := attachments.Patch(ctx, a.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
		return err
	})
}
