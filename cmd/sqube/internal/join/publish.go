package join

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
)

// Publish creates what nodes need in order to join: rights, and the ConfigMaps that they read. The controllers bootstrap-signer and
// csr-approving do the rest. It does not change existing objects, except an outdated address or CA.
func Publish(ctx context.Context, client kubernetes.Interface, c *Cluster) error {
	if err := grant(ctx, client); err != nil {
		return err
	}
	info, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": c.entry()}})
	if err != nil {
		return err
	}
	if err := publishInfo(ctx, client, string(info)); err != nil {
		return fmt.Errorf("publish %s: %w", api.ConfigMapClusterInfo, err)
	}
	for name, data := range c.configurations() {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data,
		}, metav1.CreateOptions{})
		if err := created("config map "+name, err); err != nil {
			return err
		}
	}
	return nil
}

func publishInfo(ctx context.Context, client kubernetes.Interface, kubeconfig string) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespacePublic)
	_, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: api.ConfigMapClusterInfo}, Data: map[string]string{api.KubeConfigKey: kubeconfig},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { // with the controller that signs it
		present, err := maps.Get(ctx, api.ConfigMapClusterInfo, metav1.GetOptions{})
		if err != nil || present.Data[api.KubeConfigKey] == kubeconfig {
			return err
		}
		if present.Data == nil {
			present.Data = map[string]string{}
		}
		present.Data[api.KubeConfigKey] = kubeconfig
		_, err = maps.Update(ctx, present, metav1.UpdateOptions{})
		return err
	})
}

// configurations are the ConfigMaps of kubeadm join, by name.
func (c *Cluster) configurations() map[string]map[string]string {
	return map[string]map[string]string{
		constants.KubeadmConfigConfigMap: {constants.ClusterConfigurationConfigMapKey: fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: kubernetes
kubernetesVersion: %s
controlPlaneEndpoint: %q
networking:
  dnsDomain: cluster.local
  serviceSubnet: %s
`, c.Version, c.Endpoint(), c.ServiceRange)},
		constants.KubeletBaseConfigurationConfigMap: {constants.KubeletBaseConfigurationConfigMapKey: fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous:
    enabled: false
  webhook:
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
cgroupDriver: systemd
clusterDNS:
- %s
clusterDomain: cluster.local
rotateCertificates: true
serverTLSBootstrap: true
staticPodPath: /etc/kubernetes/manifests
`, c.DNS)},
	}
}
