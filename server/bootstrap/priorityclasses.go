package bootstrap

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	systemclasses "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
)

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
