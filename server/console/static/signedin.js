// Takes the ID token out of the page to which the issuer returned, and goes to where the user was.

import { savedPlace, signIn } from './api.js';

signIn(document.body.dataset.token);
location.replace(savedPlace());
