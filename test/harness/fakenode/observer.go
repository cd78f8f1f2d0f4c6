package fakenode

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

func (o Observer) failed(format string, args ...any) {
	if o.Failed != nil {
		o.Failed(fmt.Errorf(format, args...))
	}
}

func (o Observer) renewed(lease *coordinationv1.Lease) {
	if o.Renewed != nil {
		o.Renewed(lease)
	}
}

func (o Observer) reported(pod *corev1.Pod) {
	if o.Reported != nil {
		o.Reported(pod)
	}
}

func (o Observer) removed(pod *corev1.Pod) {
	if o.Removed != nil {
		o.Removed(pod)
	}
}
