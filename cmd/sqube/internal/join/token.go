package join

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/util"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
)

// CreateToken creates a bootstrap token for nodes and returns it. It expires after lifetime, or never if that is 0.
func CreateToken(ctx context.Context, client kubernetes.Interface, description string, lifetime time.Duration) (string, error) {
	token, err := util.GenerateBootstrapToken()
	if err != nil {
		return "", err
	}
	id, secret := token[:api.BootstrapTokenIDBytes], token[api.BootstrapTokenIDBytes+1:]
	data := map[string]string{
		api.BootstrapTokenIDKey: id, api.BootstrapTokenSecretKey: secret, api.BootstrapTokenDescriptionKey: description,
		api.BootstrapTokenUsageAuthentication: "true", api.BootstrapTokenUsageSigningKey: "true",
		api.BootstrapTokenExtraGroupsKey: constants.NodeBootstrapTokenAuthGroup,
	}
	if lifetime > 0 {
		data[api.BootstrapTokenExpirationKey] = time.Now().UTC().Add(lifetime).Format(time.RFC3339)
	}
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: api.BootstrapTokenSecretPrefix + id},
		Type:       api.SecretTypeBootstrapToken,
		StringData: data,
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create the token: %w", err)
	}
	return token, nil
}
