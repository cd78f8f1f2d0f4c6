package join

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/util"
	bootstraptoken "k8s.io/kubernetes/cmd/kubeadm/app/apis/bootstraptoken/v1"
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

// ListTokens returns the bootstrap tokens, by id. A Secret of that type that is not a token is an error.
func ListTokens(ctx context.Context, client kubernetes.Interface) ([]*bootstraptoken.BootstrapToken, error) {
	selector := fields.OneTermEqualSelector("type", string(api.SecretTypeBootstrapToken)).String()
	secrets, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list the tokens: %w", err)
	}
	var tokens []*bootstraptoken.BootstrapToken
	for i := range secrets.Items {
		token, err := bootstraptoken.BootstrapTokenFromSecret(&secrets.Items[i])
		if err != nil {
			return nil, fmt.Errorf("list the tokens: %w", err)
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// DeleteToken deletes a bootstrap token, which may be given by its id alone, and returns the id.
func DeleteToken(ctx context.Context, client kubernetes.Interface, token string) (id string, err error) {
	id, _, _ = strings.Cut(token, ".")
	if !util.IsValidBootstrapTokenID(id) || id != token && !util.IsValidBootstrapToken(token) {
		return "", fmt.Errorf("%q is not a token like 4bxtz9.ulmoirbq0x3exzbm, nor the id before its dot", token)
	}
	err = client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, api.BootstrapTokenSecretPrefix+id, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no token %s: see sqube token list", id)
	}
	if err != nil {
		return "", fmt.Errorf("delete the token %s: %w", id, err)
	}
	return id, nil
}
